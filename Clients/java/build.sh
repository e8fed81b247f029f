#!/usr/bin/env bash
# Builds and tests the Java clients with a JDK and JUnit 4 alone, into Clients/java/build.
#
#   Clients/java/build.sh            compiles, tests and checks the Javadoc
#   Clients/java/build.sh --jars     compiles only
set -euo pipefail
cd "$(dirname "$0")"

junit=/usr/share/java/junit4.jar:/usr/share/java/hamcrest.jar
build=build
rm -rf "$build"
mkdir -p "$build"

# compile NAME CLASSPATH FOLDER… compiles the sources below the folders into build/NAME, for Java 8.
compile() {
    local name=$1 path=$2
    shift 2
    mkdir -p "$build/$name"
    find "$@" -name '*.java' | sort >"$build/$name.sources"
    # -options: a newer compiler warns that Java 8 is old.
    javac --release 8 -encoding UTF-8 -Xlint:all -Xlint:-options -Werror -cp "$path" -d "$build/$name" "@$build/$name.sources"
}

# package NAME makes build/NAME.jar of build/NAME.
package() {
    jar --create --file "$build/$1.jar" --date=2024-01-01T00:00:00Z -C "$build/$1" .
}

compile longwire-client . longwire-client/src/main/java
package longwire-client
# The Android library is compiled against stubs of the classes that it uses; README.md has the reason.
compile android-stubs . android-stubs/src/main/java
compile longwire-android "$build/longwire-client.jar:$build/android-stubs" longwire-android/src/main/java
package longwire-android
compile longwire-getui "$build/longwire-android.jar:$build/longwire-client.jar:$build/android-stubs" longwire-getui/src/main/java
package longwire-getui
compile longwire-driver "$build/longwire-client.jar" driver/src/main/java
package longwire-driver
if [ "${1:-}" = --jars ]; then exit 0; fi

# The examples are compiled unchanged. The first program of README.md must equal the one in Examples.
compile example-java "$build/longwire-client.jar" ../../Examples/JavaDevice
compile example-android "$build/longwire-client.jar:$build/longwire-android.jar:$build/android-stubs" ../../Examples/AndroidDevice
# program NAME extracts the program NAME from README.md to build/NAME.
program() {
    awk -v start="\`\`\`java $1" '$0 == start { inside = 1; next } /^```$/ { inside = 0 } inside' README.md >"$build/$1"
}
program Device.java
if ! diff -u ../../Examples/JavaDevice/Device.java "$build/Device.java"; then
    echo "README.md and Examples/JavaDevice/Device.java differ" >&2
    exit 1
fi

program Names.java
compile example-names "$build/longwire-client.jar" "$build/Device.java" "$build/Names.java"

if [ ! -e /usr/share/java/junit4.jar ]; then
    echo "JUnit 4 is missing; run: apt-get install junit4" >&2
    exit 1
fi
# run_tests NAME CLASSPATH FOLDER compiles and runs the tests of a module.
run_tests() {
    compile "$1-tests" "$2:$junit" "$3"
    local names
    names=$(cd "$3" && find . -name '*Test.java' | sort | sed -e 's|^\./||' -e 's|\.java$||' -e 's|/|.|g')
    # shellcheck disable=SC2086
    java -ea -cp "$build/$1-tests:$2:$junit" org.junit.runner.JUnitCore $names
}
run_tests longwire-client "$build/longwire-client.jar" longwire-client/src/test/java
run_tests longwire-android "$build/longwire-client-tests:$build/longwire-android.jar:$build/longwire-client.jar:$build/android-stubs" longwire-android/src/test/java
run_tests longwire-getui \
    "$build/longwire-client-tests:$build/longwire-android-tests:$build/longwire-getui.jar:$build/longwire-android.jar:$build/longwire-client.jar:$build/android-stubs" longwire-getui/src/test/java

# The Javadoc of the three libraries, with each warning as an error.
for name in longwire-client longwire-android longwire-getui; do
    mkdir -p "$build/javadoc/$name"
    javadoc -quiet -public -Xdoclint:all -Xwerror -encoding UTF-8 --release 8 \
        -cp "$build/longwire-client.jar:$build/longwire-android.jar:$build/android-stubs" -d "$build/javadoc/$name" \
        "@$build/$name.sources"
done
echo "Clients/java: built, tested, documented"
