package longwire.android;

/** A receiver of the answer to a request for a vendor's token. */
public interface TokenReceiver {
    /**
     * Receives a token.
     *
     * @param token the vendor's token
     */
    void onToken(String token);

    /**
     * Receives a failure; the request is repeated later.
     *
     * @param reason the vendor's reason
     */
    void onFailure(String reason);
}
