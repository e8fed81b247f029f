package longwire.getui;

/** The result of {@code unBindAlias}. */
public class UnBindAliasCmdMessage extends GTCmdMessage {
    UnBindAliasCmdMessage(String sn, int code) {
        super(PushConsts.UNBIND_ALIAS_RESULT, sn, code);
    }
}
