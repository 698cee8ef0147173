"""What programs need of the system: signals, logs, systemd, files of several users."""
