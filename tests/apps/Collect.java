import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Java: threads that build and check trees while a parallel collector moves them.
 *
 * <p>{@code java -XX:+UseParallelGC -XX:ParallelGCThreads=N Collect THREADS ROUNDS}
 *
 * <p>In each round every thread builds a tree, keeps it for some rounds beside others, and adds up an old one, which
 * collections have moved by then. All share one map under its monitor, hand numbers on through a queue with wait and
 * notify, and meet at a barrier. Prints one line of key=value numbers; whether they are right is judged by the caller:
 *
 * <pre>part=java threads=T trees=N wrong=W shared=S handed=H received=R sum=A expected_sum=E collections=C</pre>
 *
 * <p>wrong, trees that do not add up, must be 0; shared, the sum of the map, must be trees; received must be handed,
 * and sum expected_sum; collections, young and full ones, must be some.
 */
public final class Collect {
    private static final int DEPTH = 9;
    private static final int KEPT = 12;
    private static final int CAPACITY = 8;

    private static final class Node {
        final Node left;
        final Node right;
        final int value;

        Node(int depth, int value) {
            this.value = value;
            left = depth == 0 ? null : new Node(depth - 1, value + 1);
            right = depth == 0 ? null : new Node(depth - 1, value + 2);
        }

        long sum() {
            return value + (left == null ? 0 : left.sum() + right.sum());
        }
    }

    private final ArrayDeque<Integer> queue = new ArrayDeque<>();
    private final Map<Integer, Long> shared = new HashMap<>();
    private final AtomicLong wrong = new AtomicLong();
    private final AtomicLong received = new AtomicLong();
    private final AtomicLong sum = new AtomicLong();

    private void put(int value) throws InterruptedException {
        synchronized (queue) {
            while (queue.size() == CAPACITY) {
                queue.wait();
            }
            queue.add(value);
            queue.notifyAll();
        }
    }

    private int take() throws InterruptedException {
        synchronized (queue) {
            while (queue.isEmpty()) {
                queue.wait();
            }
            queue.notifyAll();
            return queue.remove();
        }
    }

    /** Even threads hand numbers on, odd ones take them. */
    private void work(int number, int rounds, CyclicBarrier barrier) throws Exception {
        Node[] kept = new Node[KEPT];
        long[] sums = new long[KEPT];
        for (int round = 0; round < rounds; round++) {
            int place = round % KEPT;
            if (kept[place] != null && kept[place].sum() != sums[place]) {
                wrong.incrementAndGet();
            }
            kept[place] = new Node(DEPTH, number * 1000 + round);
            sums[place] = kept[place].sum();
            synchronized (shared) {
                shared.merge(round % 17, 1L, Long::sum);
            }
            if (number % 2 == 0) {
                put(round);
            } else {
                sum.addAndGet(take());
                received.incrementAndGet();
            }
            if (round % 25 == 0) {
                barrier.await();
            }
            if (number == 0 && round % 100 == 99) {
                System.gc();
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        int threads = Integer.parseInt(arguments[0]);
        int rounds = Integer.parseInt(arguments[1]);
        if (threads % 2 != 0) {
            throw new IllegalArgumentException("THREADS must be even");
        }
        Collect collect = new Collect();
        CyclicBarrier barrier = new CyclicBarrier(threads);
        Thread[] running = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            int number = i;
            running[i] = new Thread(() -> {
                try {
                    collect.work(number, rounds, barrier);
                } catch (Throwable error) {
                    error.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
            });
            running[i].start();
        }
        for (Thread thread : running) {
            thread.join();
        }
        long collections = 0;
        for (GarbageCollectorMXBean bean : ManagementFactory.getGarbageCollectorMXBeans()) {
            collections += bean.getCollectionCount();
        }
        long expected = (long) rounds * (rounds - 1) / 2 * (threads / 2);
        long handed = (long) rounds * (threads / 2);
        long count = collect.shared.values().stream().mapToLong(Long::longValue).sum();
        System.out.println("part=java threads=" + threads + " trees=" + (long) threads * rounds
            + " wrong=" + collect.wrong + " shared=" + count + " handed=" + handed
            + " received=" + collect.received + " sum=" + collect.sum
            + " expected_sum=" + expected + " collections=" + collections);
    }
}
