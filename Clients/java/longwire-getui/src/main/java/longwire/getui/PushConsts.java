package longwire.getui;

/** The numbers of commands and of their failures, as apps compare them. */
public final class PushConsts {
    /** The action of a result of {@code setTag}. */
    public static final int SET_TAG_RESULT = 10009;
    /** The action of a result of {@code bindAlias}. */
    public static final int BIND_ALIAS_RESULT = 10010;
    /** The action of a result of {@code unBindAlias}. */
    public static final int UNBIND_ALIAS_RESULT = 10011;
    /** The action of a result of {@code queryTag}. */
    public static final int QUERY_TAG_RESULT = 10012;

    /** The code of a command that succeeded. */
    public static final int SUCCESS = 0;
    /** Too many tags: more than 100, or more than the gateway allows. */
    public static final int SETTAG_ERROR_COUNT = 20001;
    /** The tags were changed too often. */
    public static final int SETTAG_ERROR_FREQUENCY = 20002;
    /** The command failed for a reason without its own code, such as a busy gateway. */
    public static final int SETTAG_ERROR_EXCEPTION = 20005;
    /** The list of tags is empty. */
    public static final int SETTAG_ERROR_NULL = 20006;
    /** The sn is empty. */
    public static final int SETTAG_SN_NULL = 20007;
    /** The device has no session. */
    public static final int SETTAG_NOTONLINE = 20008;
    /** The app's setting {@code deviceMay} on the gateway does not allow the command. */
    public static final int SETTAG_IN_BLACKLIST = 20009;
    /** A tag has characters that are not allowed, or is too long. */
    public static final int SETTAG_TAG_ILLEGAL = 20011;
    /** The aliases were changed too often, or the gateway is busy; repeat the command after some seconds. */
    public static final int ALIAS_ERROR_FREQUENCY = 30001;
    /** The alias to unbind is not an alias of the device. This library reports success in that case. */
    public static final int ALIAS_OPERATE_PARAM_ERROR = 30002;
    /** The app's setting {@code deviceMay} on the gateway does not allow the command. */
    public static final int ALIAS_REQUEST_FILTER = 30003;
    /** The command failed for a reason without its own code, such as an alias with too many devices. */
    public static final int ALIAS_UNKNOWN_EXCEPTION = 30004;
    /** The device has no cid yet. */
    public static final int ALIAS_CID_LOST = 30005;
    /** The device has no session. */
    public static final int ALIAS_CONNECT_LOST = 30006;
    /** The alias is empty, has characters that are not allowed, or is too long. */
    public static final int ALIAS_INVALID = 30007;
    /** The sn is empty. */
    public static final int ALIAS_SN_INVALID = 30008;

    private PushConsts() {}
}
