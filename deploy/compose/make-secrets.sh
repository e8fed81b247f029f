#!/bin/sh
# Makes what compose.yaml's services prove to each other, once, in the volume /secrets; each file for its reader alone.
set -eu
umask 077

make() { # FILE OWNER
    if [ ! -s "/secrets/$1" ]; then head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' >"/secrets/$1"; fi
    chown "$2" "/secrets/$1"
}

chmod 0755 /secrets
make operator 10001
make prometheus 10001
# Prometheus has its own copy: it runs as nobody.
cp /secrets/prometheus /secrets/prometheus-token
chown 65534 /secrets/prometheus-token
