package longwire.client;

import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.cert.CertPathBuilder;
import java.security.cert.CertStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.cert.CollectionCertStoreParameters;
import java.security.cert.PKIXBuilderParameters;
import java.security.cert.PKIXCertPathBuilderResult;
import java.security.cert.TrustAnchor;
import java.security.cert.X509CertSelector;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import javax.net.ssl.SNIHostName;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLPeerUnverifiedException;
import javax.net.ssl.SSLSession;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509TrustManager;

/** The trusted certificates and the pins of a client, as an engine for each connection. */
final class TlsSettings {
    private final SSLContext context;
    private final List<byte[]> pins;
    private final Set<TrustAnchor> anchors = new HashSet<>();

    /**
     * Loads the trusted certificates.
     *
     * @param trusted a PEM file, or {@code null} for the system's certificates
     * @param pins SHA-256 digests of certificates
     * @throws TransportException when the file cannot be read, or the runtime has no TLS
     */
    TlsSettings(File trusted, List<byte[]> pins) throws TransportException {
        this.pins = pins;
        try {
            TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            factory.init(trusted == null ? null : load(trusted));
            for (TrustManager manager : factory.getTrustManagers()) {
                if (!pins.isEmpty() && manager instanceof X509TrustManager) {
                    for (X509Certificate issuer : ((X509TrustManager) manager).getAcceptedIssuers()) {
                        anchors.add(new TrustAnchor(issuer, null));
                    }
                }
            }
            context = SSLContext.getInstance("TLS");
            context.init(null, factory.getTrustManagers(), null);
        } catch (GeneralSecurityException error) {
            throw new TransportException("TLS cannot start: " + error.getMessage());
        }
    }

    private static KeyStore load(File file) throws TransportException, GeneralSecurityException {
        Collection<? extends Certificate> certificates;
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        try {
            if (file.length() > Limits.CERTIFICATE_FILE_BYTE_COUNT) {
                throw new TransportException(file + " is too large for a file of trusted certificates");
            }
            byte[] bytes = Files.readAllBytes(file.toPath());
            certificates =
                CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(bytes));
            store.load(null, null);
        } catch (IOException error) {
            throw new TransportException("cannot read the trusted certificates in " + file);
        } catch (GeneralSecurityException error) {
            throw new TransportException(file + " is no PEM file of certificates: " + error.getMessage());
        }
        if (certificates.isEmpty()) {
            throw new TransportException(file + " has no certificate");
        }
        int number = 0;
        for (Certificate certificate : certificates) {
            store.setCertificateEntry("trusted" + number++, certificate);
        }
        return store;
    }

    /** Returns an engine that verifies the chain and the host name. */
    SSLEngine engine(Endpoint endpoint) {
        SSLEngine engine = context.createSSLEngine(endpoint.host, endpoint.port);
        engine.setUseClientMode(true);
        SSLParameters parameters = engine.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        if (!NameLookup.isLiteral(endpoint.host)) {
            try {
                parameters.setServerNames(Collections.singletonList(new SNIHostName(endpoint.host)));
            } catch (IllegalArgumentException error) {
                // A name with characters that SNI does not allow is sent without SNI; the certificate check remains.
                parameters.setServerNames(Collections.emptyList());
            }
        }
        List<String> protocols = new ArrayList<>(Arrays.asList(engine.getSupportedProtocols()));
        protocols.retainAll(Arrays.asList("TLSv1.2", "TLSv1.3"));
        parameters.setProtocols(protocols.toArray(new String[0]));
        engine.setSSLParameters(parameters);
        return engine;
    }

    /**
     * Checks the pins after the handshake.
     *
     * <p>Only certificates of the verified chain count. A peer can append any certificate to the chain that it sends.
     *
     * @throws TransportException when pins are set and no certificate of the verified chain has one of them
     */
    void checkPins(SSLSession session, String host) throws TransportException {
        if (pins.isEmpty()) {
            return;
        }
        try {
            for (X509Certificate certificate : verifiedChain(session)) {
                byte[] digest = MessageDigest.getInstance("SHA-256").digest(certificate.getEncoded());
                for (byte[] pin : pins) {
                    if (MessageDigest.isEqual(pin, digest)) {
                        return;
                    }
                }
            }
        } catch (GeneralSecurityException | SSLPeerUnverifiedException error) {
            throw new TransportException("TLS with " + host + " failed: the chain cannot be built again for its pins");
        }
        throw new TransportException("TLS with " + host + " failed: no certificate of its chain is pinned");
    }

    private List<X509Certificate> verifiedChain(SSLSession session)
        throws GeneralSecurityException, SSLPeerUnverifiedException {
        List<Certificate> sent = Arrays.asList(session.getPeerCertificates());
        X509CertSelector leaf = new X509CertSelector();
        leaf.setCertificate((X509Certificate) sent.get(0));
        PKIXBuilderParameters parameters = new PKIXBuilderParameters(anchors, leaf);
        parameters.setRevocationEnabled(false);
        parameters.addCertStore(CertStore.getInstance("Collection", new CollectionCertStoreParameters(sent)));
        PKIXCertPathBuilderResult result =
            (PKIXCertPathBuilderResult) CertPathBuilder.getInstance("PKIX").build(parameters);
        List<X509Certificate> chain = new ArrayList<>();
        for (Certificate certificate : result.getCertPath().getCertificates()) {
            chain.add((X509Certificate) certificate);
        }
        if (result.getTrustAnchor().getTrustedCert() != null) {
            chain.add(result.getTrustAnchor().getTrustedCert());
        }
        return chain;
    }
}
