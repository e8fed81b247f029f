package longwire.getui;

/** The result of a command: an alias or tags. */
public class GTCmdMessage {
    private final int action;
    private final String sn;
    private final String code;

    GTCmdMessage(int action, String sn, int code) {
        this.action = action;
        this.sn = sn;
        this.code = Integer.toString(code);
    }

    /**
     * Returns the command.
     *
     * @return one of the {@code _RESULT} numbers of {@link PushConsts}
     */
    public int getAction() {
        return action;
    }

    /**
     * Returns the app's number of the command.
     *
     * @return the sn
     */
    public String getSn() {
        return sn;
    }

    /**
     * Returns the result.
     *
     * @return "0" for success, else a number of {@link PushConsts}
     */
    public String getCode() {
        return code;
    }
}
