#!/usr/bin/env bash
# Makes the Debian packages longwire and longwire-sender from built programs, with Debian's own dpkg-shlibdeps and dpkg-deb.
#
#   deploy/debian/build.sh [--binaries DIR] [--output DIR] [--version VERSION] [--package NAME] [--fast]
#
#   --binaries DIR     where longwire, longwired and longwire-sender are (.build/deb/release, as `make deb` builds them)
#   --output DIR       where the packages go (.build/packages)
#   --version VERSION  the packages' version (the programs')
#   --package NAME     that one alone
#   --fast             compress little: for tests
#
# Programs that are linked against the shared Swift runtime get it in /usr/lib/longwire; those of `make deb` have it inside.
# Equal programs give equal packages, byte for byte: all times are those of SOURCE_DATE_EPOCH, else of the last commit.
set -euo pipefail
cd "$(dirname "$0")/../.."

binaries=.build/deb/release output=.build/packages version='' only='' compression=(-Zxz -z6)
while [ $# -gt 0 ]; do
    case "$1" in
    --binaries) binaries=$2; shift 2 ;;
    --output) output=$2; shift 2 ;;
    --version) version=$2; shift 2 ;;
    --package) only=$2; shift 2 ;;
    --fast) compression=(-Znone); shift ;;
    -h | --help) sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "build.sh: unknown argument $1; try --help" >&2; exit 64 ;;
    esac
done
for tool in dpkg-deb dpkg-shlibdeps strip gzip; do
    command -v "$tool" >/dev/null || { echo "build.sh: $tool is missing; apt-get install dpkg-dev binutils" >&2; exit 1; }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$output"
: "${version:=$("$binaries/longwired" --version | awk '{print $2}')}"
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || date +%s)}"
export SOURCE_DATE_EPOCH
architecture=$(dpkg --print-architecture)
maintainer=${DEBFULLNAME:-Longwire maintainers}" <${DEBEMAIL:-maintainers@longwire.dev}>"
deploy/manual.py --binaries "$binaries" --output "$work/manual"

# Where a program's Swift libraries are, if it has shared ones.
shared_libraries() {
    ldd "$1" | awk '$1 ~ /^(libswift|libdispatch|libBlocksRuntime|libFoundation|lib_Foundation)/ && $3 ~ /^\// {print $3}'
}

install_program() { # PROGRAM ROOT
    local libraries
    mkdir -p "$2/usr/bin"
    libraries=$(shared_libraries "$binaries/$1")
    if [ -z "$libraries" ]; then
        install -m 0755 "$binaries/$1" "$2/usr/bin/$1"
        strip --strip-unneeded "$2/usr/bin/$1"
        return
    fi
    # The programs look beside themselves ($ORIGIN), and so do the libraries.
    mkdir -p "$2/usr/lib/$package"
    install -m 0755 "$binaries/$1" "$2/usr/lib/$package/$1"
    strip --strip-unneeded "$2/usr/lib/$package/$1"
    ln -s "../lib/$package/$1" "$2/usr/bin/$1"
    local library
    for library in $libraries; do
        [ -e "$2/usr/lib/$package/${library##*/}" ] || install -m 0644 "$library" "$2/usr/lib/$package/"
    done
}

install_manual() { # PROGRAM ROOT
    local page section
    for page in "$work/manual/man/$1".*; do
        section=${page##*.}
        mkdir -p "$2/usr/share/man/man$section"
        gzip -9nc "$page" >"$2/usr/share/man/man$section/${page##*/}.gz"
    done
    install -D -m 0644 "$work/manual/bash/$1" "$2/usr/share/bash-completion/completions/$1"
    install -D -m 0644 "$work/manual/zsh/_$1" "$2/usr/share/zsh/vendor-completions/_$1"
    install -D -m 0644 "$work/manual/fish/$1.fish" "$2/usr/share/fish/vendor_completions.d/$1.fish"
}

install_documents() { # ROOT FILE…
    local root=$1 document
    shift
    local folder=$root/usr/share/doc/$package
    mkdir -p "$folder"
    for document in "$@"; do install -D -m 0644 "$document" "$folder/$document"; done
    install -m 0644 deploy/debian/copyright "$folder/copyright"
    {
        printf '%s (%s) stable; urgency=medium\n\n' "$package" "$version"
        printf '  * See CHANGELOG.md in this folder.\n\n'
        printf ' -- %s  %s\n' "$maintainer" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"
    } | gzip -9n >"$folder/changelog.gz"
    mkdir -p "$root/usr/share/lintian/overrides"
    sed "s/@PACKAGE@/$package/" deploy/debian/lintian-overrides >"$root/usr/share/lintian/overrides/$package"
}

# The Debian packages whose libraries the programs need.
dependencies() { # ROOT
    local folder=$work/shlibs-$package programs=() path
    mkdir -p "$folder/debian"
    printf 'Source: longwire\n\nPackage: %s\nArchitecture: any\n' "$package" >"$folder/debian/control"
    for path in "$1"/usr/bin/*; do programs+=(-e "$(realpath "$path")"); done
    # The Swift libraries beside the programs belong to no Debian package; they are warned about.
    (cd "$folder" && dpkg-shlibdeps -O --ignore-missing-info -l"$1/usr/lib/$package" "${programs[@]}") \
        2>"$folder/warnings" >"$folder/depends" || { cat "$folder/warnings" >&2; return 1; }
    sed -n 's/^shlibs:Depends=//p' "$folder/depends"
}

finish() { # ROOT
    local root=$1 script depends size
    mkdir -p "$root/DEBIAN"
    for script in postinst prerm postrm; do install -m 0755 "deploy/debian/$package/$script" "$root/DEBIAN/$script"; done
    (cd "$root" && find etc -type f -printf '/%p\n' | LC_ALL=C sort) >"$root/DEBIAN/conffiles"
    depends=$(dependencies "$root")
    [ -n "$depends" ] || { echo "build.sh: dpkg-shlibdeps found no library of $package" >&2; exit 1; }
    size=$(du -k -s --apparent-size --exclude=DEBIAN "$root" | cut -f 1)
    sed -e "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@MAINTAINER@/$maintainer/; s/@SIZE@/$size/" \
        -e "s/@DEPENDS@/$depends/" "deploy/debian/$package/control" >"$root/DEBIAN/control"
    (cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\n' | LC_ALL=C sort | xargs md5sum) >"$root/DEBIAN/md5sums"
    find "$root" -type d -exec chmod 0755 {} +
    chmod 0644 "$root/DEBIAN/"{control,conffiles,md5sums}
    dpkg-deb --root-owner-group "${compression[@]}" --build "$root" "$output/${package}_${version}_$architecture.deb" >/dev/null
    echo "$output/${package}_${version}_$architecture.deb"
}

make_longwire() {
    package=longwire root=$work/longwire
    install_program longwired "$root"
    install_program longwire "$root"
    install_manual longwired "$root"
    install_manual longwire "$root"
    install -D -m 0640 deploy/debian/longwire/gateway.json5 "$root/etc/longwire/gateway.json5"
    install -D -m 0644 deploy/systemd/longwired.service "$root/lib/systemd/system/longwired.service"
    install -D -m 0644 deploy/systemd/longwire.sysusers "$root/usr/lib/sysusers.d/longwire.conf"
    install -D -m 0644 -t "$root/usr/share/longwire" deploy/systemd/60-longwire.conf deploy/systemd/journald-longwire.conf \
        deploy/redis/redis.conf
    install -D -m 0644 -t "$root/usr/share/longwire/prometheus" deploy/prometheus/longwire-alerts.yaml deploy/prometheus/prometheus.yaml
    install -D -m 0644 -t "$root/usr/share/longwire/grafana" deploy/grafana/longwire.json
    install -D -m 0644 -t "$root/usr/share/longwire/proxies" deploy/proxies/*
    install_documents "$root" README.md README.zh-CN.md CHANGELOG.md docs/*.md docs/*/*
    finish "$root"
}

make_apns() {
    package=longwire-sender root=$work/longwire-sender
    install_program longwire-sender "$root"
    install_manual longwire-sender "$root"
    install -D -m 0640 deploy/debian/longwire-sender/sender.json5 "$root/etc/longwire/sender.json5"
    install -D -m 0644 deploy/systemd/longwire-sender.service "$root/lib/systemd/system/longwire-sender.service"
    install -D -m 0644 deploy/systemd/longwire-sender.sysusers "$root/usr/lib/sysusers.d/longwire-sender.conf"
    install_documents "$root" CHANGELOG.md docs/use/APNs.md docs/use/APNs.zh-CN.md \
        docs/use/Vendors.md docs/use/Vendors.zh-CN.md
    finish "$root"
}

case "$only" in
"") make_longwire; make_apns ;;
longwire) make_longwire ;;
longwire-sender) make_apns ;;
*) echo "build.sh: there is no package $only" >&2; exit 64 ;;
esac
