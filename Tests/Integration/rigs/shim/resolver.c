// A resolver for LD_PRELOAD: a name with "slow-dns" fails after eight seconds.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **result) {
    static lookup *original;
    if (!original) original = (lookup *)dlsym(RTLD_NEXT, "getaddrinfo");
    if (name && strstr(name, "slow-dns")) {
        sleep(8);
        return EAI_AGAIN;
    }
    return original(name, service, hints, result);
}
