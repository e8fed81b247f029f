package longwire.client;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;
import static org.junit.Assert.fail;

import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.channels.Selector;
import java.nio.file.Files;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.Principal;
import java.security.PrivateKey;
import java.security.cert.X509Certificate;
import java.util.Arrays;
import java.util.Collections;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.KeyManager;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLServerSocket;
import javax.net.ssl.X509ExtendedKeyManager;
import org.junit.BeforeClass;
import org.junit.ClassRule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** TLS of the transport: trust, host names and pins, against a server with certificates of {@code keytool}. */
public class SocketTransportTest {
    @ClassRule
    public static final TemporaryFolder FOLDER = new TemporaryFolder();
    private static final char[] PASSWORD = "changeit".toCharArray();
    private static final int RECORD = 64;
    private static final int RECORDS = 100;
    private static final int TINY_RECORDS = 2 * Limits.RECORD_COUNT;
    /** The commands to the server: many records of full length, or many records of one byte. */
    private static final int MANY = 200;
    private static final int TINY = 201;
    /** The semaphore with a permit for each answer that the server has sent. */
    private static Semaphore written;
    private static KeyStore keys;
    private static File root;
    private static File other;

    private static void keytool(String words) throws Exception {
        String[] all = ("keytool -keystore keys.p12 -storetype PKCS12 -storepass changeit -noprompt " + words).split(" ");
        all[0] = new File(System.getProperty("java.home"), "bin/keytool").getPath();
        File log = new File(FOLDER.getRoot(), "log");
        Process process = new ProcessBuilder(all).directory(FOLDER.getRoot()).redirectErrorStream(true)
            .redirectOutput(log).start();
        assertEquals(new String(Files.readAllBytes(log.toPath())), 0, process.waitFor());
    }

    @BeforeClass
    public static void createCertificates() throws Exception {
        keytool("-genkeypair -alias root -dname CN=root -ext bc:c -keyalg EC -groupname secp256r1");
        keytool("-genkeypair -alias other -dname CN=other -ext bc:c -keyalg EC -groupname secp256r1");
        keytool("-genkeypair -alias leaf -dname CN=leaf -keyalg EC -groupname secp256r1");
        keytool("-certreq -alias leaf -file leaf.csr");
        keytool("-gencert -alias root -infile leaf.csr -outfile leaf.pem -rfc -ext san=ip:127.0.0.1");
        keytool("-importcert -alias leaf -file leaf.pem");
        keytool("-exportcert -alias root -rfc -file root.pem");
        keytool("-exportcert -alias other -rfc -file other.pem");
        root = new File(FOLDER.getRoot(), "root.pem");
        other = new File(FOLDER.getRoot(), "other.pem");
        keys = KeyStore.getInstance("PKCS12");
        try (InputStream input = new FileInputStream(new File(FOLDER.getRoot(), "keys.p12"))) {
            keys.load(input, PASSWORD);
        }
    }

    private static X509Certificate certificate(String alias) throws Exception {
        return (X509Certificate) keys.getCertificate(alias);
    }

    private static byte[] digest(String alias) throws Exception {
        return MessageDigest.getInstance("SHA-256").digest(certificate(alias).getEncoded());
    }

    /** Returns a server that sends the certificates, of which the first one is the leaf. */
    private static SSLServerSocket serve(String... chain) throws Exception {
        X509Certificate[] certificates = new X509Certificate[chain.length];
        for (int index = 0; index < chain.length; index++) {
            certificates[index] = certificate(chain[index]);
        }
        PrivateKey key = (PrivateKey) keys.getKey(chain[0], PASSWORD);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(new KeyManager[] {new Keys(certificates, key)}, null, null);
        SSLServerSocket server = (SSLServerSocket) context.getServerSocketFactory().createServerSocket(
            0, 8, InetAddress.getLoopbackAddress());
        written = new Semaphore(0);
        Thread thread = new Thread(() -> {
            while (!server.isClosed()) {
                try (Socket socket = server.accept()) {
                    int first = socket.getInputStream().read();
                    // The command decides whether the records are as long as one read of the client, or one byte long.
                    byte[] answer = new byte[first == MANY ? RECORD : 1];
                    Arrays.fill(answer, (byte) (first + 1));
                    int count = first == MANY ? RECORDS : first == TINY ? TINY_RECORDS : 1;
                    for (int record = 0; record < count; record++) {
                        socket.getOutputStream().write(answer);
                    }
                    written.release();
                    socket.getInputStream().read();
                } catch (IOException error) {
                    // The client refused the certificate.
                    Thread.yield();
                }
            }
        });
        thread.setDaemon(true);
        thread.start();
        return server;
    }

    private static final class Keys extends X509ExtendedKeyManager {
        private final X509Certificate[] chain;
        private final PrivateKey key;

        Keys(X509Certificate[] chain, PrivateKey key) {
            this.chain = chain;
            this.key = key;
        }

        @Override
        public String[] getClientAliases(String type, Principal[] issuers) {
            return null;
        }

        @Override
        public String chooseClientAlias(String[] types, Principal[] issuers, Socket socket) {
            return null;
        }

        @Override
        public String[] getServerAliases(String type, Principal[] issuers) {
            return new String[] {"leaf"};
        }

        @Override
        public String chooseServerAlias(String type, Principal[] issuers, Socket socket) {
            return type.startsWith("EC") ? "leaf" : null;
        }

        @Override
        public X509Certificate[] getCertificateChain(String alias) {
            return chain;
        }

        @Override
        public PrivateKey getPrivateKey(String alias) {
            return key;
        }
    }

    /** Connects, sends a byte and returns the failure, or {@code null} if the answer came. */
    private static String connect(SSLServerSocket server, String host, File trusted, byte[]... pins) throws Exception {
        try (Selector selector = Selector.open()) {
            Transport transport = null;
            try {
                TlsSettings tls = new TlsSettings(trusted, Arrays.asList(pins));
                Endpoint endpoint = new Endpoint(host, server.getLocalPort());
                transport = new SocketTransport(selector, endpoint, tls, ClientClock.SYSTEM, selector::wakeup);
                byte[] answer = new byte[8];
                boolean isSent = false;
                while (true) {
                    transport.serve();
                    if (transport.isOpen() && !isSent) {
                        isSent = true;
                        transport.write(new byte[] {41});
                    }
                    if (transport.isOpen() && transport.read(answer) > 0) {
                        assertEquals(42, answer[0]);
                        transport.closeGracefully();
                        return null;
                    }
                    transport.prepareToWait();
                    selector.select(FakeGateway.PATIENCE_SECONDS * 1_000);
                    selector.selectedKeys().clear();
                }
            } catch (TransportException error) {
                return error.getMessage();
            } finally {
                if (transport != null) {
                    transport.close();
                }
            }
        }
    }

    @Test
    public void bytesBehindAFullReadAreNotForgotten() throws Exception {
        try (SSLServerSocket server = serve("leaf", "root"); Selector selector = Selector.open()) {
            TlsSettings tls = new TlsSettings(root, Collections.emptyList());
            Endpoint endpoint = new Endpoint("127.0.0.1", server.getLocalPort());
            SocketTransport transport =
                new SocketTransport(selector, endpoint, tls, ClientClock.SYSTEM, selector::wakeup);
            // The lookup of a numeric address wakes the selector at once. That wake-up would end a later wait too early.
            selector.selectNow();
            try {
                byte[] target = new byte[RECORD];
                int total = 0;
                boolean isSent = false;
                while (total < RECORD * RECORDS) {
                    transport.serve();
                    if (transport.isOpen() && !isSent) {
                        isSent = true;
                        transport.write(new byte[] {(byte) MANY});
                    }
                    if (transport.isOpen()) {
                        total += transport.read(target);
                    }
                    // As the client's thread does: it sleeps only if nothing is left behind.
                    if (total < RECORD * RECORDS && !transport.hasMoreToRead()) {
                        transport.prepareToWait();
                        int events = selector.select(FakeGateway.PATIENCE_SECONDS * 1_000);
                        assertTrue("bytes were left behind", events > 0 || total == 0);
                        selector.selectedKeys().clear();
                    }
                }
                assertEquals(RECORD * RECORDS, total);
            } finally {
                transport.close();
            }
        }
    }

    @Test
    public void oneReadDecryptsALimitedNumberOfRecords() throws Exception {
        try (SSLServerSocket server = serve("leaf", "root"); Selector selector = Selector.open()) {
            TlsSettings tls = new TlsSettings(root, Collections.emptyList());
            Endpoint endpoint = new Endpoint("127.0.0.1", server.getLocalPort());
            SocketTransport transport =
                new SocketTransport(selector, endpoint, tls, ClientClock.SYSTEM, selector::wakeup);
            try {
                while (!transport.isOpen()) {
                    transport.serve();
                    transport.prepareToWait();
                    selector.select(1);
                    selector.selectedKeys().clear();
                }
                transport.write(new byte[] {(byte) TINY});
                assertTrue(written.tryAcquire(FakeGateway.PATIENCE_SECONDS, TimeUnit.SECONDS));
                byte[] target = new byte[Limits.READ_BYTE_COUNT];
                int total = 0;
                int reads = 0;
                while (total < TINY_RECORDS) {
                    int count = transport.read(target);
                    assertTrue(count + " records in one read", count <= Limits.RECORD_COUNT);
                    total += count;
                    reads++;
                }
                assertTrue(reads + " reads", reads >= 2);
            } finally {
                transport.close();
            }
        }
    }

    private static void assertFails(String part, String failure) {
        assertTrue("it fails: " + failure, failure != null);
        assertTrue(failure, failure.contains(part));
    }

    @Test
    public void onlyTrustedChainsAndNamesAreAccepted() throws Exception {
        try (SSLServerSocket server = serve("leaf", "root")) {
            assertEquals(null, connect(server, "127.0.0.1", root));
            assertFails("certification path", connect(server, "127.0.0.1", other));
            assertFails("certification path", connect(server, "127.0.0.1", null));
            assertFails("localhost", connect(server, "localhost", root));
        }
    }

    @Test
    public void aPinNamesACertificateOfTheVerifiedChain() throws Exception {
        byte[] spare = new byte[32];
        try (SSLServerSocket server = serve("leaf", "root")) {
            assertEquals(null, connect(server, "127.0.0.1", root, digest("leaf")));
            assertEquals(null, connect(server, "127.0.0.1", root, spare, digest("root")));
            assertFails("pinned", connect(server, "127.0.0.1", root, spare));
        }
        try (SSLServerSocket server = serve("leaf")) {
            assertEquals("the root is not sent", null, connect(server, "127.0.0.1", root, digest("root")));
        }
        try (SSLServerSocket server = serve("leaf", "root", "other")) {
            assertFails("pinned", connect(server, "127.0.0.1", root, digest("other")));
        }
    }

    @Test
    public void faultyFilesOfCertificatesAreNamed() throws Exception {
        File empty = FOLDER.newFile("empty.pem");
        File rubbish = FOLDER.newFile("rubbish.pem");
        Files.write(rubbish.toPath(), "-----BEGIN CERTIFICATE-----\nxyz\n".getBytes("US-ASCII"));
        for (File file : new File[] {empty, rubbish, new File(FOLDER.getRoot(), "missing.pem")}) {
            try {
                new TlsSettings(file, Collections.emptyList());
                fail(file + " was accepted");
            } catch (TransportException error) {
                assertTrue(error.getMessage(), error.getMessage().contains(file.getName()));
            }
        }
    }
}
