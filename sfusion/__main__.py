"""The command ``sfusion``, which is also ``python -m sfusion``."""

# Not signal, whose import of enum takes two thirds of the time before main.
import _signal as signal  # type: ignore[import-not-found]


def main() -> None:
    """Run the command line. Until a command begins, Ctrl-C ends the process as the system does,
    without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from sfusion.harness.cli import main as run_commands

    run_commands()


if __name__ == "__main__":
    main()
