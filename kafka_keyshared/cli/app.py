"""The command line as a whole.

Each verb imports its modules when it is called, so that help stays fast.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from kafka_keyshared.cli.output import write_error
from kafka_keyshared.cli.verbs import acting, bench, demo, dlq, ring, spark, spark_dlq, spark_tools
from kafka_keyshared.cli.verbs import advise as advising
from kafka_keyshared.cli.verbs import config as configuring
from kafka_keyshared.cli.verbs import read as reading
from kafka_keyshared.cli.verbs import run as running
from kafka_keyshared.cli.verbs import simulate as simulating
from kafka_keyshared.cli.verbs import status as looking
from kafka_keyshared.errors import KeySharedError

app = typer.Typer(
    name="keyshared",
    help="Per-key order with more workers than partitions, on Kafka consumer groups.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help, because the boxes of rich would double the time of --help.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(version("kafka-keyshared"))
        raise typer.Exit


@app.callback()
def before_every_verb(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Print it and end."),
    ] = False,
) -> None:
    """Take what stands before the verb."""


app.add_typer(demo.verbs, name="demo")
app.command("run")(running.run_command)
app.command("doctor")(running.doctor)
app.command("status")(looking.status)
app.command("lag")(acting.lag)
app.command("top")(acting.top)
app.command("pause")(acting.pause)
app.command("resume")(acting.resume)
app.command("drain")(acting.drain)
app.command("scale")(acting.scale)
app.add_typer(configuring.verbs, name="config")
app.command("read")(reading.read)
app.command("advise")(advising.advise)
app.command("init")(advising.init)
app.add_typer(ring.verbs, name="ring")
app.add_typer(bench.verbs, name="bench")
app.command("simulate")(simulating.simulate)
app.add_typer(dlq.verbs, name="dlq")
app.add_typer(spark.verbs, name="spark")
spark.verbs.command("audit")(spark_tools.spark_audit)
spark.verbs.command("skew")(spark_tools.spark_skew)
spark.verbs.command("dlq")(spark_dlq.spark_dlq)

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
    # Imported here, so that help stays fast.
    from kafka_keyshared.config.renamed_settings import renamed_option

    return renamed_option(option)


if __name__ == "__main__":
    sys.exit(run())
