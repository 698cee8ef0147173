"""A Slurm site of one node in a container, from Debian's packages and on Debian's own unit files."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from slurm_testbed.waiting import stretched

if TYPE_CHECKING:
    from tests.systemd.systemd_container import Container

GPUS: Final = 4
CPUS: Final = 16
MEMORY_MIB: Final = 64_000
USER: Final = "ada"
ACCOUNT: Final = "research"
DATABASE_PASSWORD: Final = "of-a-container-without-network"

SLURM_CONF: Final = """\
ClusterName=container
SlurmctldHost={hostname}
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,sched_min_interval=200000
ReturnToService=2
GresTypes=gpu
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={hostname}
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=limits,qos
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
NodeName=n1 NodeHostname={hostname} CPUs={cpus} RealMemory={memory} Gres=gpu:a100:{gpus}
PartitionName=gpu Nodes=n1 Default=YES MaxTime=7-0 DefMemPerCPU=1000
"""

SLURMDBD_CONF: Final = """\
AuthType=auth/munge
DbdHost={hostname}
SlurmUser=slurm
PidFile=/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm_acct
"""


def write_configuration(container: Container, *, extra: str = "") -> None:
    """Write Slurm's configuration, GPUs that are /dev/null, and an empty database's folder. Before the boot."""
    conf = SLURM_CONF.format(hostname=container.hostname, cpus=CPUS, memory=MEMORY_MIB, gpus=GPUS)
    container.write("/etc/slurm/slurm.conf", conf + extra)
    container.write("/etc/slurm/gres.conf", f"NodeName=n1 Name=gpu Type=a100 File=/srv/gpu/nvidia[0-{GPUS - 1}]\n")
    # Nothing here uses cgroups, yet slurmd looks at them, and its v2 plugin refuses a kernel that mounts v1 as well.
    container.write("/etc/slurm/cgroup.conf", "CgroupPlugin=cgroup/v1\n")
    container.write("/etc/default/slurmd", 'SLURMD_OPTIONS="-N n1"\n')
    for number in range(GPUS):
        container.make_device(f"/srv/gpu/nvidia{number}", 1, 3)
    slurmdbd_conf = SLURMDBD_CONF.format(hostname=container.hostname, password=DATABASE_PASSWORD)
    container.write("/etc/slurm/slurmdbd.conf", slurmdbd_conf, mode=0o600, owner="slurm")
    # Neither the machine's own databases nor its limits on memory: a folder of its own, a small buffer.
    container.write("/etc/mysql/mariadb.conf.d/99-container.cnf", MARIADB_CNF)


MARIADB_CNF: Final = """\
[mariadbd]
datadir = /srv/mysql
skip-networking
innodb_buffer_pool_size = 32M
innodb_log_file_size = 8M
innodb_flush_log_at_trx_commit = 0
"""


def start(container: Container) -> None:
    """Start munge, MariaDB, slurmdbd, slurmctld and slurmd by systemctl; add an ordinary user with an account."""
    container.run("useradd", "--create-home", USER)
    container.run("install", "-d", "-o", "mysql", "-g", "mysql", "/srv/mysql")
    container.run("mariadb-install-db", "--user=mysql", "--datadir=/srv/mysql", "--skip-test-db")
    container.start("munge", "mariadb")
    sql = (
        f"CREATE USER slurm@localhost IDENTIFIED BY '{DATABASE_PASSWORD}';"
        "CREATE DATABASE slurm_acct; GRANT ALL ON slurm_acct.* TO slurm@localhost;"
    )
    container.run("mariadb", text=sql)
    # slurmdbd makes its tables before it listens; slurmctld alone would begin without accounting.
    container.start("slurmdbd")
    wait_for(container, "sacctmgr", "-n", "show", "cluster")
    container.run("sacctmgr", "-i", "add", "cluster", "container")
    container.run("sacctmgr", "-i", "add", "account", ACCOUNT)
    container.run("sacctmgr", "-i", "add", "user", USER, f"account={ACCOUNT}")
    container.start("slurmctld", "slurmd")
    wait_for(container, "sinfo", "-h", "-o", "%T", expect="idle")


def submit(container: Container, script: str, *options: str) -> int:
    """Submit a batch script as the ordinary user; return the job's id."""
    done = container.run("sbatch", "--parsable", "--chdir", f"/home/{USER}", *options, user=USER, text=script)
    return int(done.stdout.strip().split(";")[0])


def wait_for(container: Container, *argv: str, expect: str = "", limit_s: float = 60) -> str:
    """Run a command until it succeeds and prints `expect`; return what it printed.

    Between two runs it waits as long as the last one took: a command of Python's would keep a core busy.
    """
    began = time.monotonic()
    while True:
        looked = time.monotonic()
        done = container.run(*argv, check=False)
        if done.returncode == 0 and expect in done.stdout:
            return done.stdout
        if time.monotonic() - began > stretched(limit_s):
            services = container.journal("slurmdbd", "slurmctld", "slurmd", "munge", "mariadb")
            raise TimeoutError(f"{' '.join(argv)} does not say {expect!r}: {done.stdout}{done.stderr}\n{services}")
        time.sleep(max(0.2, time.monotonic() - looked))
