"""The place of a record as a Spark expression, computed in Java.

:class:`~kafka_keyshared.spark.placement.RecordPlacement` defines where a record goes. Asking it
sends every key to a Python process and back, and queues the whole record until then. A Java library
that Spark bundles also has murmur3. For the slot functions based on murmur3, Java looks the same
table up. A test compares both, key by key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka_keyshared.hashing import SLOT_SEED
from kafka_keyshared.spark.placement import RecordPlacement

if TYPE_CHECKING:
    from pyspark.sql import Column

SEEDS = {"mmh3": SLOT_SEED, "pulsar": 0}
"""Seeds of the slot functions that are the low 16 bits of 32-bit murmur3.

The sign is not one of those bits.
"""

_MURMUR3 = "org.apache.commons.codec.digest.MurmurHash3"


def place_column(places: RecordPlacement) -> Column | None:
    """Return the place of a record from its columns key, partition and offset.

    Returns None when only Python has the slot function.
    """
    from pyspark.sql import functions as f

    if places.whole:
        return f.lit(places.table[0])
    numbers = _in_table(places.numbers, f.col("offset") % len(places.numbers))
    if places.turns:
        return numbers
    seed = SEEDS.get(places.slot_function)
    if seed is None:
        return None
    by_turns = _in_table(
        places.numbers, (f.col("partition") + f.col("offset")) % len(places.numbers)
    )
    keyless = by_turns if places.nulls is None else f.lit(places.nulls)
    slot = _murmur3("key", seed).bitwiseAND(0xFFFF)
    return f.when(f.col("key").isNull(), keyless).otherwise(_in_table(places.table, slot))


def _in_table(table: Any, index: Column) -> Column:
    """Return the number at an index, from 0, of a table that Spark parses once."""
    from pyspark.sql import functions as f

    told = ",".join(map(str, table))
    return f.element_at(f.expr(f"cast(split('{told}', ',') as array<int>)"), index.cast("int") + 1)


def _murmur3(name: str, seed: int) -> Column:
    """Return the hash of a column of bytes; pyspark has no API for calling a Java method."""
    from pyspark import SparkContext
    from pyspark.sql import Column
    from pyspark.sql import functions as f

    jvm = java_of(SparkContext.getOrCreate(), "_jvm")
    of = jvm.org.apache.spark.sql.classic.ExpressionUtils
    given = [f.col(name), f.lit(0), f.octet_length(name), f.lit(seed)]
    called = jvm.org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke(
        jvm.java.lang.Class.forName(_MURMUR3),
        jvm.org.apache.spark.sql.types.DataTypes.IntegerType,
        "hash32x86",
        jvm.PythonUtils.toSeq([of.expression(java_of(each, "_jc")) for each in given]),
        jvm.PythonUtils.toSeq([]),
        True,  # a null key has no hash
        False,
        True,  # it is deterministic
        jvm.scala.Option.empty(),
    )
    return Column(of.column(called))


def java_of(thing: Any, name: str) -> Any:
    """Return the Java object behind a pyspark object; pyspark has no public name for it."""
    return getattr(thing, name)
