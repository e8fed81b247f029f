#!/bin/sh
# Makes the secrets of compose.yaml's services once, in the volume /secrets. Each file is readable for its own service alone.
set -eu
umask 077
gateway=10001 sender=10002 prometheus=65534 grafana=472

token() { # FILE OWNER
    if [ ! -s "/secrets/$1" ]; then head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' >"/secrets/$1"; fi
    chown "$2" "/secrets/$1"
}

copy() { # FILE COPY OWNER
    cp "/secrets/$1" "/secrets/$2"
    chown "$3" "/secrets/$2"
}

chmod 0755 /secrets
token operator $gateway
token grafana $grafana
token prometheus $gateway
copy prometheus prometheus-token $prometheus
token sender $gateway
copy sender sender-token $sender

# The gateway's certificate: for devices, and for the sender, which calls the gateway by the name of its service.
# shellcheck disable=SC2086
longwire-make-certificate /secrets/tls gateway localhost 127.0.0.1 ::1 ${LONGWIRE_TLS_NAMES-}
chown -R $gateway /secrets/tls
copy tls/certificate.pem gateway-authority.pem $sender

# The fake Apple and the sender share a user, the fake's certificate and the key that the fake accepts.
longwire-make-certificate /secrets/fake-apple fake-apple localhost
if [ ! -s /secrets/fake-apple/AuthKey.p8 ]; then
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out /secrets/fake-apple/AuthKey.p8
fi
chown -R $sender /secrets/fake-apple
