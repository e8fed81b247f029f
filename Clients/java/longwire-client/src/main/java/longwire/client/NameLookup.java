package longwire.client;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A name lookup on its own thread; if it is slow, the addresses of an earlier lookup of the same name are used.
 *
 * <p>The system's resolver blocks, for minutes if a name server does not answer. The client's thread must not wait for
 * it.
 */
final class NameLookup {
    /** A resolver of names. */
    interface Resolver {
        InetAddress[] resolve(String host) throws UnknownHostException;
    }

    private static final AtomicInteger THREADS = new AtomicInteger();
    /** The last addresses by name, with the one used last at the end; guarded by its own monitor. */
    private static final Map<String, InetAddress[]> KNOWN = new LinkedHashMap<>();

    private final String host;
    private final ClientClock clock;
    private final long due;
    private volatile InetAddress[] found;
    private volatile String failure;

    NameLookup(String host, ClientClock clock, Resolver resolver, Runnable wake) throws TransportException {
        this.host = host;
        this.clock = clock;
        due = clock.monotonicMillis() + Limits.LOOK_UP_TIME;
        if (isLiteral(host)) {
            resolve(resolver);
            wake.run();
        } else if (!start(resolver, wake) && known() == null) {
            throw new TransportException("cannot look up " + host + ": earlier lookups are unfinished");
        }
    }

    private boolean start(Resolver resolver, Runnable wake) {
        if (THREADS.incrementAndGet() > Limits.LOOK_UP_THREAD_COUNT) {
            THREADS.decrementAndGet();
            return false;
        }
        Thread thread = new Thread(() -> {
            try {
                resolve(resolver);
            } finally {
                THREADS.decrementAndGet();
                wake.run();
            }
        }, "longwire-lookup");
        thread.setDaemon(true);
        try {
            thread.start();
            return true;
        } catch (OutOfMemoryError error) {
            // The system gave no thread.
            THREADS.decrementAndGet();
            return false;
        }
    }

    private void resolve(Resolver resolver) {
        try {
            InetAddress[] addresses = resolver.resolve(host);
            if (!isLiteral(host)) {
                remember(host, addresses);
            }
            found = addresses;
        } catch (UnknownHostException error) {
            failure = "cannot find " + host;
        } catch (RuntimeException error) {
            failure = "cannot find " + host + ": " + error.getMessage();
        }
    }

    /** Whether the host is a numeric address, which needs no name server. */
    static boolean isLiteral(String host) {
        if (host.indexOf(':') >= 0) {
            return true;
        }
        int dots = 0;
        for (int index = 0; index < host.length(); index++) {
            char character = host.charAt(index);
            if (character == '.') {
                dots++;
            } else if (character < '0' || character > '9') {
                return false;
            }
        }
        return dots == 3;
    }

    private static void remember(String host, InetAddress[] addresses) {
        synchronized (KNOWN) {
            KNOWN.remove(host);
            KNOWN.put(host, addresses);
            if (KNOWN.size() > Limits.KNOWN_NAME_COUNT) {
                KNOWN.remove(KNOWN.keySet().iterator().next());
            }
        }
    }

    private InetAddress[] known() {
        synchronized (KNOWN) {
            return KNOWN.get(host);
        }
    }

    /** Returns the addresses, or {@code null} while the lookup runs. */
    InetAddress[] result() throws TransportException {
        if (found != null) {
            return found;
        }
        if (failure != null) {
            throw new TransportException(failure);
        }
        return clock.monotonicMillis() >= due ? known() : null;
    }

    /** The time when {@link #result} falls back to earlier addresses, or {@code Long.MAX_VALUE} if none are known. */
    long deadline() {
        return known() == null ? Long.MAX_VALUE : due;
    }
}
