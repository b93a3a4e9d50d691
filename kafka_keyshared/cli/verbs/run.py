"""Options of ``keyshared run`` and ``keyshared doctor``, which share all settings."""

from __future__ import annotations

from kafka_keyshared.cli.arguments import RunArguments, takes_settings
from kafka_keyshared.cli.options import (
    AuditLog,
    Handler,
    HeldAfter,
    JsonFlag,
    LogFormat,
    LogLevel,
    OptionalHandler,
    OutputFlag,
    Outputs,
    RulesFile,
    SparkFlag,
    StatusUrl,
    Watch,
)
from kafka_keyshared.cli.output import OutputFormat


@takes_settings(Handler)
def run_command(
    arguments: RunArguments,
    audit_log: AuditLog = None,
    outputs: Outputs = None,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
) -> int:
    """Run a handler until SIGTERM or Ctrl-C.

    The stop drains the running records, commits and leaves the group.
    """
    from kafka_keyshared.cli.run import run_verb

    return run_verb(arguments, log_level, log_format, audit_log, outputs)


@takes_settings(OptionalHandler)
def doctor(  # noqa: PLR0917 - each is an option of the command line
    arguments: RunArguments,
    watch: Watch = None,
    held_after: HeldAfter = 60.0,
    status_url: StatusUrl = None,
    spark: SparkFlag = False,
    rules: RulesFile = None,
    json: JsonFlag = False,
    output: OutputFlag = OutputFormat.TABLE,
) -> int:
    """Check the requirements of a run, and the progress of its group.

    The command joins no group and writes nothing. Exit status 0: healthy, possibly with warnings.
    3: a check failed.
    """
    from kafka_keyshared.cli.doctor import doctor_verb
    from kafka_keyshared.observability.doctor.progress import Looking

    looking = Looking(watch, held_after, status_url, spark, rules)
    return doctor_verb(arguments, looking, OutputFormat.JSON if json else output)
