#!/bin/sh
# The image's entrypoint. At the first start of the trial configuration it makes the files that this configuration names,
# then it runs the command. It never replaces a file, and it makes nothing for a configuration without these names.
set -eu
umask 077
data=/var/lib/longwire
configuration=/etc/longwire/gateway.json5

names() { grep -v '^ *//' "$configuration" | grep -q "\"$data/$1"; }

if [ "${1-}" = longwired ] && [ -r "$configuration" ]; then
    if names tls/; then
        # LONGWIRE_TLS_NAMES is a list of further names, separated by spaces.
        # shellcheck disable=SC2086
        longwire-make-certificate "$data/tls" localhost 127.0.0.1 ::1 "$(hostname)" ${LONGWIRE_TLS_NAMES-}
    fi
    if names operator-token && [ ! -e "$data/operator-token" ]; then
        head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$data/operator-token.new"
        mv "$data/operator-token.new" "$data/operator-token"
        echo "longwire: made the console's token; read it with: docker exec CONTAINER cat $data/operator-token" >&2
    fi
    # The command `longwire` in this container finds the token by a context of its configuration file.
    if names operator-token && [ ! -e "$data/.config/longwire" ]; then
        rm -rf "$data/.config/longwire.new"
        mkdir -p "$data/.config/longwire.new"
        echo "{contexts: {trial: {adminTokenFile: \"$data/operator-token\"}}}" >"$data/.config/longwire.new/config.json5"
        echo trial >"$data/.config/longwire.new/current-context"
        mv "$data/.config/longwire.new" "$data/.config/longwire"
    fi
fi
exec "$@"
