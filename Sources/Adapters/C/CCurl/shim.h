// Wrappers of curl's variadic setters and getters, which Swift cannot call.
#include <curl/curl.h>

static inline CURLcode longwire_curl_set_long(CURL *handle, CURLoption option, long value) {
    return curl_easy_setopt(handle, option, value);
}
static inline CURLcode longwire_curl_set_size(CURL *handle, CURLoption option, curl_off_t value) {
    return curl_easy_setopt(handle, option, value);
}
static inline CURLcode longwire_curl_set_pointer(CURL *handle, CURLoption option, const void *value) {
    return curl_easy_setopt(handle, option, value);
}
static inline CURLcode longwire_curl_set_writer(
    CURL *handle, size_t (*writer)(char *bytes, size_t size, size_t count, void *context), void *context) {
    CURLcode code = curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, writer);
    return code != CURLE_OK ? code : curl_easy_setopt(handle, CURLOPT_WRITEDATA, context);
}
static inline CURLcode longwire_curl_set_socket_opener(
    CURL *handle, curl_socket_t (*opener)(void *context, curlsocktype purpose, struct curl_sockaddr *address)) {
    return curl_easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, opener);
}
static inline CURLcode longwire_curl_get_long(CURL *handle, CURLINFO information, long *value) {
    return curl_easy_getinfo(handle, information, value);
}
static inline CURLcode longwire_curl_get_size(CURL *handle, CURLINFO information, curl_off_t *value) {
    return curl_easy_getinfo(handle, information, value);
}
static inline CURLcode longwire_curl_get_pointer(CURL *handle, CURLINFO information, void **value) {
    return curl_easy_getinfo(handle, information, value);
}
static inline CURLMcode longwire_curl_multi_set_long(CURLM *multi, CURLMoption option, long value) {
    return curl_multi_setopt(multi, option, value);
}
static inline CURLcode longwire_curl_get_socket(CURL *handle, curl_socket_t *value) {
    return curl_easy_getinfo(handle, CURLINFO_ACTIVESOCKET, value);
}
