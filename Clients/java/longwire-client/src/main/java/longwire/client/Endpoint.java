package longwire.client;

/** A host name, or a numeric address without brackets, and a port. */
final class Endpoint {
    final String host;
    final int port;

    Endpoint(String host, int port) {
        boolean isBracketed = host.startsWith("[") && host.endsWith("]") && host.contains(":");
        this.host = isBracketed ? host.substring(1, host.length() - 1) : host;
        this.port = port;
    }

    /** Parses host:port, with an IPv6 address in brackets; returns {@code null} for anything else. */
    static Endpoint parse(String text) {
        int colon = text.lastIndexOf(':');
        String digits = text.substring(colon + 1);
        if (colon <= 0 || digits.isEmpty() || digits.length() > 5) {
            return null;
        }
        int port = 0;
        for (int index = 0; index < digits.length(); index++) {
            char digit = digits.charAt(index);
            if (digit < '0' || digit > '9') {
                return null;
            }
            port = port * 10 + digit - '0';
        }
        String host = text.substring(0, colon);
        boolean isBracketed = host.length() > 2 && host.startsWith("[") && host.endsWith("]");
        if (isBracketed) {
            host = host.substring(1, host.length() - 1);
        }
        if (port == 0 || port > 65_535) {
            return null;
        }
        // The host reaches the system's resolver and the certificate check, so only letters, digits, `.`, `-`, `_` and
        // IPv6 colons are accepted.
        for (int index = 0; index < host.length(); index++) {
            char character = host.charAt(index);
            boolean isLetter = character >= 'a' && character <= 'z' || character >= 'A' && character <= 'Z';
            boolean isDigit = character >= '0' && character <= '9';
            boolean isMark = character == '.' || character == '-' || character == '_' || character == ':'
                && isBracketed;
            if (!isLetter && !isDigit && !isMark) {
                return null;
            }
        }
        return new Endpoint(host, port);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Endpoint && ((Endpoint) other).port == port && ((Endpoint) other).host.equals(host);
    }

    @Override
    public int hashCode() {
        return 31 * host.hashCode() + port;
    }

    @Override
    public String toString() {
        return host.contains(":") ? "[" + host + "]:" + port : host + ":" + port;
    }
}
