import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/**
 * Confluent's parallel-consumer as a system of `keyshared bench compare`.
 *
 * Arguments: bootstrap, topic, group, records, limit in seconds, concurrency, sleep in microseconds,
 * processor time in nanoseconds, whether the sleep is uneven (0 or 1), and the notebook's path or
 * "-". Prints one line of JSON: the records that were done, and in how many seconds.
 */
public final class ParallelConsumerPeer {
    private static final long IDLE_LIMIT_SECONDS = 60;
    private static final int NOTE_BYTES = 32;

    private final long records;
    private final long sleepMicros;
    private final long cpuNanos;
    private final boolean uneven;
    private final FileChannel notebook;
    private final ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    private final AtomicLong begun = new AtomicLong();
    private final AtomicLong done = new AtomicLong();
    private final CountDownLatch all = new CountDownLatch(1);
    private volatile long ended;

    private ParallelConsumerPeer(String[] args) throws Exception {
        records = Long.parseLong(args[3]);
        sleepMicros = Long.parseLong(args[6]);
        cpuNanos = Long.parseLong(args[7]);
        uneven = args[8].equals("1");
        notebook = args[9].equals("-") ? null : FileChannel.open(
            Path.of(args[9]), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    private void handle(ConsumerRecord<String, byte[]> record) {
        long start = 0;
        if (begun.get() == 0 || notebook != null) {
            start = System.nanoTime();
            begun.compareAndSet(0, start);
        }
        work(record.value());
        if (notebook != null) {
            note(record.value(), start, System.nanoTime());
        }
        if (done.incrementAndGet() == records) {
            ended = System.nanoTime();
            all.countDown();
        }
    }

    private void work(byte[] value) {
        if (sleepMicros > 0) {
            long micros = sleepMicros;
            if (uneven) {
                micros = micros * ((numbers(value).getLong(0) * 2_654_435_761L >> 16) & 0xFF) / 255;
            }
            try {
                TimeUnit.MICROSECONDS.sleep(micros);
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            }
        } else if (cpuNanos > 0) {
            long end = threads.getCurrentThreadCpuTime() + cpuNanos;
            while (threads.getCurrentThreadCpuTime() < end) {
                Thread.onSpinWait();
            }
        }
    }

    private static ByteBuffer numbers(byte[] value) {
        return ByteBuffer.wrap(value).order(ByteOrder.LITTLE_ENDIAN);
    }

    private void note(byte[] value, long start, long end) {
        ByteBuffer line = ByteBuffer.allocate(NOTE_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        line.putLong(numbers(value).getLong(0)).putLong(numbers(value).getLong(8));
        line.putLong(start).putLong(end).flip();
        try {
            notebook.write(line);
        } catch (java.io.IOException failure) {
            throw new java.io.UncheckedIOException(failure);
        }
    }

    /** Waits until all are done, the limit has passed, or nothing has moved for a minute. */
    private void await(double limitSeconds) throws InterruptedException {
        long last = 0;
        long moved = System.nanoTime();
        while (!all.await(20, TimeUnit.MILLISECONDS)) {
            long now = System.nanoTime();
            if (done.get() != last) {
                last = done.get();
                moved = now;
            }
            if (begun.get() != 0 && now - begun.get() > limitSeconds * 1e9) {
                return;
            }
            if (now - moved > TimeUnit.SECONDS.toNanos(IDLE_LIMIT_SECONDS)) {
                throw new IllegalStateException(
                    "nothing was done for " + IDLE_LIMIT_SECONDS + " s after " + last + " records");
            }
        }
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[2]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put(
            "value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        ParallelConsumerPeer peer = new ParallelConsumerPeer(args);
        ParallelStreamProcessor<String, byte[]> processor =
            ParallelStreamProcessor.createEosStreamProcessor(
                ParallelConsumerOptions.<String, byte[]>builder()
                    .ordering(ProcessingOrder.KEY)
                    .maxConcurrency(Integer.parseInt(args[5]))
                    .consumer(new KafkaConsumer<>(settings))
                    .build());
        processor.subscribe(List.of(args[1]));
        processor.poll(context -> peer.handle(context.getSingleConsumerRecord()));
        peer.await(Double.parseDouble(args[4]));
        long end = peer.ended == 0 ? System.nanoTime() : peer.ended;
        System.out.println(String.format(Locale.ROOT, "{\"seconds\":%.6f,\"records\":%d}",
            (end - peer.begun.get()) / 1e9, peer.done.get()));
        System.out.flush();
        processor.closeDontDrainFirst();
        System.exit(0);
    }
}
