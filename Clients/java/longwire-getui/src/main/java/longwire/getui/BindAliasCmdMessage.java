package longwire.getui;

/** The result of {@code bindAlias}. */
public class BindAliasCmdMessage extends GTCmdMessage {
    BindAliasCmdMessage(String sn, int code) {
        super(PushConsts.BIND_ALIAS_RESULT, sn, code);
    }
}
