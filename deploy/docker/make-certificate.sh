#!/bin/sh
# Makes a self-signed certificate for a trial: FOLDER/certificate.pem and FOLDER/key.pem. Does nothing if FOLDER exists.
#
#   longwire-make-certificate FOLDER NAME...     NAME: a DNS name or an IP address that clients connect to
set -eu
umask 077
folder=$1
shift
if [ -e "$folder" ]; then exit 0; fi

names=
for name in "$@"; do
    case "$name" in
    *:*) kind=IP ;;
    *[!0-9.]*) kind=DNS ;;
    *) kind=IP ;;
    esac
    names=${names:+$names,}$kind:$name
done

# The rename is the last step, so a container that is killed here leaves no certificate without its key.
rm -rf "$folder.new"
mkdir -p "$folder.new"
# Clients of Apple refuse a certificate of more than 825 days or without the purpose serverAuth.
if ! said=$(openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 825 -subj "/CN=Longwire trial" \
    -addext "subjectAltName=$names" -addext extendedKeyUsage=serverAuth \
    -keyout "$folder.new/key.pem" -out "$folder.new/certificate.pem" 2>&1); then
    printf 'longwire-make-certificate: no certificate for %s:\n%s\n' "$names" "$said" >&2
    exit 1
fi
mv "$folder.new" "$folder"
echo "longwire: made a self-signed certificate for $names: $folder/certificate.pem" >&2
