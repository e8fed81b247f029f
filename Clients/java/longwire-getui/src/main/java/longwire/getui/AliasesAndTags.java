package longwire.getui;

/**
 * The commands on aliases and tags that a device sends to its gateway.
 *
 * <p>This is the one place where they are connected. The protocol has no frames for them yet, so {@link #NOT_OFFERED}
 * is the only implementation.
 */
interface AliasesAndTags {
    /** A receiver of a command's result, on the main thread. */
    interface Done {
        void done(int code);
    }

    void bindAlias(String alias, Done done);

    void unbindAlias(String alias, boolean isSelf, Done done);

    void setTags(String[] tags, Done done);

    void queryTags(Done done);

    /** The answer "not offered by this gateway", with Getui's codes for a failure that has no other code. */
    AliasesAndTags NOT_OFFERED = new AliasesAndTags() {
        @Override
        public void bindAlias(String alias, Done done) {
            done.done(PushConsts.ALIAS_UNKNOWN_EXCEPTION);
        }

        @Override
        public void unbindAlias(String alias, boolean isSelf, Done done) {
            done.done(PushConsts.ALIAS_UNKNOWN_EXCEPTION);
        }

        @Override
        public void setTags(String[] tags, Done done) {
            done.done(PushConsts.SETTAG_ERROR_EXCEPTION);
        }

        @Override
        public void queryTags(Done done) {
            done.done(PushConsts.SETTAG_ERROR_EXCEPTION);
        }
    };
}
