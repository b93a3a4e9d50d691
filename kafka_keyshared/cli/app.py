"""The command line as a whole.

Each command imports its modules when it is called, so that help stays fast.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kafka_keyshared.cli.output import write_error
from kafka_keyshared.cli.verbs import bench, config, demo, dlq, instance, routing, spark
from kafka_keyshared.cli.verbs.advise import advise, init
from kafka_keyshared.cli.verbs.read import read
from kafka_keyshared.cli.verbs.run import doctor, run_command
from kafka_keyshared.cli.verbs.simulate import simulate
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.former_names import FORMER_COMMANDS, FORMER_OPTIONS


class Commands(TyperGroup):
    """The commands; a former name of a command is refused with its successor."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that ``args`` name; raise :class:`ConfigError` for a former name."""
        former, *rest = args
        if former in FORMER_COMMANDS:
            import shlex

            now = shlex.join(["keyshared", FORMER_COMMANDS[former], *rest])
            raise ConfigError(f"the command {former!r} is {FORMER_COMMANDS[former]!r} now: {now}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="keyshared",
    cls=Commands,
    help="Per-key order with more workers than partitions, on Kafka consumer groups.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help, because the boxes of rich would double the time of --help.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(version("kafka-keyshared"))
        raise typer.Exit


@app.callback()
def before_every_verb(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Handle the options before the command."""


app.command("run")(run_command)
app.command("doctor")(doctor)
app.command("status")(instance.status)
app.command("lag")(instance.lag)
app.command("top")(instance.top)
app.command("pause")(instance.pause)
app.command("resume")(instance.resume)
app.command("quiesce")(instance.quiesce)
app.command("scale")(instance.scale)
app.command("read")(read)
app.command("advise")(advise)
app.command("init")(init)
app.command("simulate")(simulate)
app.add_typer(demo.verbs, name="demo")
app.add_typer(config.verbs, name="config")
app.add_typer(routing.verbs, name="routing")
app.add_typer(bench.verbs, name="bench")
app.add_typer(dlq.verbs, name="dlq")
app.add_typer(spark.verbs, name="spark")

INTERRUPTED = 130
"""typer's status for Ctrl-C. Here it is an ordinary failure, because the work was not done."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and turn this package's errors into a line and a status."""
    try:
        status = app(args=arguments, prog_name="keyshared", standalone_mode=False)
    except KeySharedError as error:
        write_error(str(error))
        return error.exit_code
    except typer.Exit as ended:
        status = ended.exit_code
    except (typer.Abort, KeyboardInterrupt):
        status = INTERRUPTED
    except Exception as error:
        # A usage error can print itself. Any other error is a defect.
        show = getattr(error, "show", None)
        if show is None:
            raise
        if (text := _renamed_option(error)) is not None:
            write_error(text)
        else:
            show()
        return int(getattr(error, "exit_code", 2))
    if status == INTERRUPTED:
        write_error("interrupted")
        return 1
    return status if isinstance(status, int) else 0


def _renamed_option(error: Exception) -> str | None:
    """Return the error text for an option's former name, None for any other usage error."""
    if (option := getattr(error, "option_name", None)) is None:
        return None
    if (successor := FORMER_OPTIONS.get(option)) is not None:
        return f"{option} has been renamed: give {successor}"
    # Imported here, so that help stays fast.
    from kafka_keyshared.config.renamed_settings import renamed_option

    return renamed_option(option)


if __name__ == "__main__":
    sys.exit(run())
