package longwire.client;

/** The client's limits; times are in milliseconds. */
final class Limits {
    /** The protocol's default frame limit; a longer frame is an error of the peer. */
    static final int FRAME_BYTE_COUNT = 64 << 10;
    /** The number of opened message ids in the state: more than a screen full of notifications. */
    static final int OPENED_COUNT = 256;
    /** The message ids that the duplicate filters of both channels and of notifications remember. */
    static final int SEEN_COUNT = 256;
    /** Opened message ids in one Hello (Protocol.md, "Limits"); further ones are sent as Feedback. */
    static final int OPENED_PER_HELLO_COUNT = 32;
    /** Vendor tokens in one Hello, and the bytes of a token and its topic (Protocol.md, "Limits"). */
    static final int TOKEN_COUNT = 16;
    static final int TOKEN_BYTE_COUNT = 1_024;
    static final int TOPIC_BYTE_COUNT = 255;
    /** Tokens of Live Activities within {@code TOKEN_COUNT}, and the bytes of an activity's name. */
    static final int ACTIVITY_TOKEN_COUNT = 8;
    static final int ACTIVITY_BYTE_COUNT = 64;
    /** The bytes of an app id, and of the client's name (64 characters). */
    static final int APP_ID_BYTE_COUNT = 64;
    static final int CLIENT_NAME_BYTE_COUNT = 64;
    /** The number of streams with a position in Hello and Ack; gateways use two. */
    static final int STREAM_COUNT = 8;
    /** Rejections in one Ack; the client sends several Acks for more. */
    static final int REJECTED_PER_ACK_COUNT = 32;
    /** Rejections that no Pong has confirmed: two windows of a gateway, one of which may be in flight. */
    static final int REJECTION_COUNT = 64;
    /** Code points of a rejection's reason, so that its bytes fit into an Ack. */
    static final int REASON_CHARACTER_COUNT = 128;
    /** The bytes of a reason: 128 characters of up to four bytes. */
    static final int REASON_BYTE_COUNT = 512;
    /** The bytes of host:port, where a host name has at most 253 characters. */
    static final int ALTERNATE_BYTE_COUNT = 264;
    /** The counts of dropped messages in a Welcome. */
    static final int DROPPED_COUNT = 16;
    /** The bytes of a device secret that the codec accepts; a registration needs exactly {@code SECRET_BYTE_COUNT}. */
    static final int SECRET_FIELD_BYTE_COUNT = 64;
    static final int SECRET_BYTE_COUNT = 32;
    /** Ranges in one position (Protocol.md, "Limits"). */
    static final int RANGE_COUNT = 32;
    /**
     * Messages of one session that were received and not processed. A gateway's window is far below, so a peer beyond
     * this limit is not a Longwire gateway.
     */
    static final int HOLE_COUNT = 1_024;
    /** Remembered ranges of one stream: one more than the maximum number of holes. */
    static final int PROCESSED_RANGE_COUNT = HOLE_COUNT + 1;
    /** Bytes of payloads that the app has not decided on: far above a gateway's window of 64 KiB. */
    static final int HANDLING_BYTE_COUNT = 4 << 20;
    /** The timeouts for connecting, and for the Welcome after that: enough for a slow mobile network. */
    static final long CONNECT_TIME = 10_000;
    static final long WELCOME_TIME = 10_000;
    /** The timeout of one address before the next one is tried, within {@code CONNECT_TIME}. */
    static final long ADDRESS_TIME = 2_500;
    /**
     * The time before a slow name lookup is replaced by the addresses of an earlier one, within {@code CONNECT_TIME}.
     */
    static final long LOOK_UP_TIME = 2_500;
    /** Names whose last addresses are remembered: the gateway's and those of its alternates. */
    static final int KNOWN_NAME_COUNT = 16;
    /** Threads in name lookups; an unresponsive name server blocks a lookup for minutes. */
    static final int LOOK_UP_THREAD_COUNT = 8;
    /** The timeout of a Ping; after it the connection counts as dead. */
    static final long PONG_TIME = 10_000;
    /** The delay of a timer from which on the processor counts as having slept. */
    static final long LATE_TIME = 10_000;
    /** Full jitter: a random time below base · 2ⁿ, and never above the cap (Protocol.md, "The algorithm"). */
    static final long BACKOFF_BASE = 1_000;
    static final long BACKOFF_CAP = 120_000;
    /** The session length that resets the backoff. */
    static final long STEADY_TIME = 60_000;
    /** The reconnect delay after Close(replaced): the other session is most likely a newer process of the same app. */
    static final long REPLACED_TIME = 30_000;
    /** The longest reconnect delay that a gateway may request. */
    static final long RETRY_WINDOW = 3_600_000;
    /** The heartbeat when the gateway names none, in seconds. */
    static final long DEFAULT_HEARTBEAT_SECONDS = 300;
    /** The shortest and the longest heartbeat that a gateway grants, in seconds (Protocol.md, "Limits"). */
    static final long LEAST_HEARTBEAT_SECONDS = 30;
    static final long GREATEST_HEARTBEAT_SECONDS = 1_800;
    /**
     * Answered heartbeats before a longer one is tried, and before a failed one is retried. A failed attempt leaves the
     * connection dead for one heartbeat.
     */
    static final int ANSWERS_BEFORE_LONGER = 4;
    static final int ANSWERS_BEFORE_RETRIAL = 32;
    /** Pending reports of shown messages and actions. */
    static final int REPORT_COUNT = 256;
    /** The numbers of custom actions (Protocol.md, "Limits"). */
    static final int FIRST_ACTION = 90_001;
    static final int LAST_ACTION = 90_999;
    /** Messages to the app's server that wait for the gateway: their number, all their bytes, and the bytes of one. */
    static final int OUTGOING_COUNT = 128;
    static final int OUTGOING_BYTE_COUNT = 512 << 10;
    static final int OUTGOING_PAYLOAD_BYTE_COUNT = 16 << 10;
    /** The maximum number of queued requests about the device's names, including the one in flight. */
    static final int NAMES_COUNT = 32;
    /** The maximum number of tags in one request, and the maximum length of an alias, a type or a tag. */
    static final int TAG_COUNT = 200;
    static final int NAME_BYTE_COUNT = 256;
    /** The maximum total length of the names in one request, which must fit a frame (Protocol.md, "Limits"). */
    static final int NAMES_BYTE_COUNT = 28 << 10;
    /** The wait for the result of a request about names; after it the connection counts as dead. */
    static final long NAMES_TIME = 30_000;
    /** The bytes of a token of the app's server. */
    static final int SERVER_TOKEN_BYTE_COUNT = 2_048;
    /**
     * Result codes from {@code FIRST_RETRIED_CODE} on allow a retry, {@code BUSY_CODE} after a short delay (Errors.md).
     */
    static final long FIRST_RETRIED_CODE = 100;
    static final long BUSY_CODE = 102;
    static final long BUSY_RETRY_TIME = 3_000;
    static final long FULL_RETRY_TIME = 60_000;
    /** The length of a text attribute of the device, and of its locale. */
    static final int ATTRIBUTE_BYTE_COUNT = 64;
    static final int LOCALE_BYTE_COUNT = 35;
    /** Networks whose learnt heartbeat is kept, and the bytes of a network's name. */
    static final int NETWORK_COUNT = 8;
    static final int NETWORK_NAME_BYTE_COUNT = 64;
    /** The silence of the gateway that completes a fetch: several round trips of a slow network. */
    static final long FETCH_QUIET_TIME = 1_500;
    /** The longest duration of a fetch. */
    static final long FETCH_TIME = 3_600_000;
    /** Fetches that wait for an end. */
    static final int FETCH_COUNT = 64;
    /** The greatest valid sequence; larger numbers would overflow the arithmetic. */
    static final long GREATEST_SEQUENCE = 1L << 62;
    /** Unsent bytes of a connection; Acks and Pings are small, so this many mean a dead connection. */
    static final int OUTBOX_BYTE_COUNT = 1 << 20;
    /**
     * The time that the gateway has to read the last bytes and close its side. An immediate close with unread bytes
     * would reset the connection, and the last ack could be lost.
     */
    static final long LINGER_TIME = 500;
    /** The time by which an announced wake-up may be early. */
    static final long WAKEUP_SLACK = 5_000;
    /** Calls that the store does not accept, kept in memory. */
    static final int KEPT_CALL_COUNT = 512;
    /** Calls of the app in the client's mailbox. */
    static final int COMMAND_COUNT = 4_096;
    /** The maximum number of bytes of one read from the socket. */
    static final int READ_BYTE_COUNT = 64 << 10;
    /**
     * The maximum number of reads in one turn, and of TLS records in one read or handshake step. Records may be empty or
     * hold one byte, so a limit in bytes does not bound the work.
     */
    static final int TURN_READ_COUNT = 4;
    static final int RECORD_COUNT = 1_024;
    /**
     * A state file beyond this size is damaged: the largest state has about 1.2 MB, most of it messages to the server.
     */
    static final int STATE_FILE_BYTE_COUNT = 4 << 20;
    /** A PEM file of certificates beyond this size is refused; all public authorities together have about 250 KB. */
    static final int CERTIFICATE_FILE_BYTE_COUNT = 4 << 20;

    private Limits() {}
}
