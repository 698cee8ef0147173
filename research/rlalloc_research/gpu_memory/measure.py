"""Measures a set of setups on this machine's first GPU: ``PYTHONPATH=core:research python measure.py SET OUTPUT``.

SET is a key of SETS. Each setup has a process of its own: no setup finds the memory of another. It is forked from one
that has imported the libraries, except where bitsandbytes is needed. OUTPUT has one JSON object a line; setups in
it are left out. A setup that the GPU's memory does not hold is in it with ``out_of_memory``. Needs torch,
transformers, accelerate and peft, and bitsandbytes for quantised weights and 8-bit optimizers.
"""

import gc
import importlib.metadata
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import msgspec

_ALONE: Final = "--alone"
if _ALONE not in sys.argv:
    # Its import starts CUDA, which no process survives that is forked later: the libraries must not see it here.
    sys.modules["bitsandbytes"] = None  # type: ignore[assignment]

import accelerate  # noqa: E402
import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from torch.utils.data import Dataset  # noqa: E402
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments  # noqa: E402

from rlalloc_research.gpu_memory.memory_setups import CONFIGS, SETUPS, Setup, held_out  # noqa: E402
from rlalloc_research.gpu_memory.other_families import MODELS, OTHER_FAMILIES, SECOND_DRAW  # noqa: E402

SETS: Final = {"first": SETUPS, "other-families": OTHER_FAMILIES, "second-draw": SECOND_DRAW}

_STEPS: Final = 3
_ANSWER: Final = 16
_PATIENCE_S: Final = 240.0
_DTYPES: Final = {"fp32": torch.float32, "amp": torch.float32, "bf16": torch.bfloat16}
_PACKAGES: Final = ("torch", "transformers", "accelerate", "peft", "bitsandbytes")


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Random tokens without padding."""

    def __init__(self, length: int, vocabulary: int, count: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self._tokens = torch.randint(vocabulary, (count, length), generator=generator)

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._tokens[number], "labels": self._tokens[number]}


def main(setups: Sequence[Setup], output: Path, *only: str) -> int:
    """Measure what OUTPUT does not have; ``only``: setups that say one of these words. Returns the exit status."""
    known = {row["what"] for row in _rows(output)}
    wanted = [
        setup
        for setup in setups
        if setup.describe() not in known and (not only or any(word in setup.describe() for word in only))
    ]
    for setup in wanted:
        began = time.monotonic()
        found = _alone(setup) if setup.base == "nf4" or "8bit" in setup.optimizer else _forked(setup)
        row: dict[str, Any] = {"what": setup.describe(), "held_out": held_out(setup), "script": setup.script()}
        row |= {"model": setup.model, "config": _config(setup), **found}
        with output.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")
        told = (
            row.get("error")
            or row.get("out_of_memory")
            or f"{row['allocated'] / 2**30:.2f} GiB, {row['used'] / 2**30:.2f} used"
        )
        print(f"{setup.describe()}: {told} ({time.monotonic() - began:.0f} s)", flush=True)
    return 0


def _forked(setup: Setup) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_measured, args=(setup, theirs))
    process.start()
    theirs.close()
    try:
        found: dict[str, Any] = ours.recv() if ours.poll(_PATIENCE_S) else {"error": "it took too long"}
    except EOFError:
        found = {"error": "the process ended"}
    process.join(5)
    process.kill()
    return found


def _alone(setup: Setup) -> dict[str, Any]:
    """In an interpreter of its own."""
    words = [sys.executable, __file__, _ALONE, setup.describe()]
    ended = subprocess.run(words, stdout=subprocess.PIPE, timeout=_PATIENCE_S, check=False)
    lines = ended.stdout.splitlines()
    found: dict[str, Any] = msgspec.json.decode(lines[-1]) if lines else {"error": "the process ended"}
    return found


def _print_one(name: str) -> int:
    setup = next(each for setups in SETS.values() for each in setups if each.describe() == name)
    print(msgspec.json.encode(_found(setup)).decode(), flush=True)
    return 0


def _rows(path: Path) -> list[dict[str, Any]]:
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [row for line in lines if "error" not in (row := msgspec.json.decode(line))]


def _measured(setup: Setup, answer: Connection) -> None:
    answer.send(_found(setup))
    answer.close()
    os._exit(0)


def _found(setup: Setup) -> dict[str, Any]:
    try:
        return _peak(setup)
    except torch.OutOfMemoryError as err:
        total = torch.cuda.get_device_properties(0).total_memory
        return {"out_of_memory": str(err)[:500], "total": total, "gpu": torch.cuda.get_device_name()}
    except Exception as err:  # noqa: BLE001 (whatever it is belongs into the row)
        return {"error": f"{type(err).__name__}: {err}"[:500]}


def _peak(setup: Setup) -> dict[str, Any]:
    """Bytes at the peak: given out by PyTorch's allocator, held by it, and used of the GPU by this process."""
    torch.manual_seed(0)
    on_gpu = torch.cuda.is_available()
    free, _ = torch.cuda.mem_get_info() if on_gpu else (0, 0)  # with this process's context
    if on_gpu:
        total = torch.cuda.get_device_properties(0).total_memory
    model = _model(setup, torch.device("cuda" if on_gpu else "cpu"))
    parameters = sum(each.numel() for name, each in model.named_parameters() if "lora_" not in name)
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    (_serve if setup.serve else _train)(setup, model)
    if not on_gpu:
        return {"parameters": parameters, "trained": trained, "allocated": 0, "reserved": 0, "used": 0}
    torch.cuda.synchronize()
    now_free, _ = torch.cuda.mem_get_info()
    stats = torch.cuda.memory_stats()
    return {
        "parameters": parameters,
        "trained": trained,
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "used": total - now_free,
        "before": total - free,
        "total": total,
        "retries": stats["num_alloc_retries"],
        "gpu": torch.cuda.get_device_name(),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _config(setup: Setup) -> dict[str, Any]:
    other = MODELS.get(setup.model)
    return dict(CONFIGS[setup.model] if other is None else other.config)


def _model(setup: Setup, device: torch.device) -> Any:
    """The model with random weights, made on the GPU."""
    values = _config(setup)
    config = transformers.CONFIG_MAPPING[values.pop("model_type")](**values)
    with device:
        model = AutoModelForCausalLM.from_config(config, dtype=_DTYPES[setup.precision])
    model.config.use_cache = setup.serve
    if setup.base == "nf4":
        _quantise(model, device)
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=setup.checkpointing)
    if setup.lora:
        targets = setup.targets if setup.targets == "all-linear" else setup.targets.split(",")
        adapters = peft.LoraConfig(r=setup.lora, target_modules=targets, task_type="CAUSAL_LM")
        made = peft.get_peft_model(model, adapters)
        model.is_loaded_in_4bit = False  # else the Trainer asks a quantiser that from_pretrained would have left
        return made
    return model


def _quantise(model: Any, device: torch.device) -> None:
    """As from_pretrained does with BitsAndBytesConfig(nf4, double quantisation): all matrices but the head."""
    import bitsandbytes

    for name, module in list(model.named_modules()):
        if type(module) is not torch.nn.Linear or name.endswith("lm_head"):
            continue
        made = bitsandbytes.nn.Linear4bit(
            module.in_features,
            module.out_features,
            bias=module.bias is not None,
            compute_dtype=torch.bfloat16,
            compress_statistics=True,
            quant_type="nf4",
            device="meta",
        )
        made.weight = bitsandbytes.nn.Params4bit(
            module.weight.data.to("cpu"), requires_grad=False, compress_statistics=True, quant_type="nf4"
        )
        made.bias = module.bias
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, made.to(device))
    model.is_loaded_in_4bit = True  # what PEFT looks for


def _train(setup: Setup, model: Any) -> None:
    if setup.ddp:
        os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
        # With one process, Accelerate would leave DistributedDataParallel out.
        accelerate.Accelerator.multi_device = property(lambda _: True)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=_STEPS,
            per_device_train_batch_size=setup.micro_batch,
            gradient_accumulation_steps=setup.accumulation,
            bf16=setup.precision == "amp" or bool(setup.lora),
            gradient_checkpointing=setup.checkpointing,
            optim=setup.optimizer,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
        )
        vocabulary = _config(setup)["vocab_size"]
        data = Tokens(setup.sequence, vocabulary, _STEPS * setup.micro_batch * setup.accumulation)
        trainer = Trainer(model=model, args=arguments, train_dataset=data)
        trainer.train()
        wrapped = type(trainer.model_wrapped).__name__
        if (wrapped == "DistributedDataParallel") != setup.ddp:
            raise RuntimeError(f"the model was wrapped as {wrapped}")


def _serve(setup: Setup, model: Any) -> None:
    model.eval()
    prompt = torch.randint(_config(setup)["vocab_size"], (1, setup.sequence - _ANSWER), device=model.device)
    with torch.inference_mode():
        model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=_ANSWER,
            min_new_tokens=_ANSWER,
            do_sample=False,
            pad_token_id=0,
        )


if __name__ == "__main__":
    if sys.argv[1] == _ALONE:
        sys.exit(_print_one(sys.argv[2]))
    sys.exit(main(SETS[sys.argv[1]], Path(sys.argv[2]), *sys.argv[3:]))
