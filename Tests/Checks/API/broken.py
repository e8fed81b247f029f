"""Requests that no schema describes: bodies that are no JSON, other content types, no token, unexpected headers.

Each is sent to every documented call, and each answer is checked against docs/use/openapi.yaml.
"""

import os
import sys
import zlib

import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import hooks

CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_headers_conformance,
    response_schema_conformance, hooks.envelope,
]
BODIES = [
    b"", b"null", b"[]", b"{}", b"0", b'""', b"true", b"{", b'{"a":}', b"\xff\xfe", b"\xef\xbb\xbf{}", b'{"a":"\\ud800"}',
    b"[" * 100, b'{"a":1}{"b":2}', b"1e999", b"\x1f\x8b\x08\x00", b"a=b&c=d", b"<xml/>", b'{"audience":{"cid":null}}',
    b'{"push_message":[],"settings":[],"audience":[]}', b'{"msg_list":[null,1,"x",[],{}]}',
    b'{"data_list":[null]}', b'{"tag":[{}]}', b'{"custom_tag":[[]]}', b'{"jobs":[{}],"leaseSeconds":"x"}',
    b'{"cid_list":[{}],"dt_list":[{}]}',
]
HEADERS = [
    {"Content-Type": "application/json;charset=utf-8"}, {"Content-Type": "text/xml"}, {"Content-Type": ""},
    {"Content-Type": "application/json", "Content-Encoding": "gzip"}, {"Content-Type": "multipart/form-data"},
    {"Content-Type": "application/json", "Accept": "text/html"}, {"Content-Type": "application/json; charset=GBK"},
]
CREDENTIALS = ["good", "none", "wrong", "empty", "both"]


def credentials(kind, header):
    good = {"token": os.environ["LONGWIRE_TOKEN"], "Authorization": "Bearer " + os.environ["LONGWIRE_ADMIN_TOKEN"]}
    return {
        "good": {header: good[header]}, "none": {}, "wrong": {header: good[header][:-4] + "AAAA"}, "empty": {header: ""},
        "both": good,
    }[kind]


def parameters(operation):
    """Returns existing names for the path's parameters."""
    values = {
        "appId": hooks.WORLD["appId"], "cid": hooks.WORLD["cids"][0], "cids": ",".join(hooks.WORLD["cids"]),
        "taskId": hooks.WORLD["tasks"][0], "taskIds": ",".join(hooks.WORLD["tasks"]), "alias": hooks.WORLD["aliases"][0],
        "tag": "vip", "type": "wx", "token": "x" * 64, "group": "g", "date": hooks.WORLD["dates"][0],
        "msgId": hooks.WORLD["messages"][0],
        "requestId": "fill-000000",
    }
    return {name: values[name] for name in values if "{" + name + "}" in operation.path}


def main():
    listeners = {"public": sys.argv[1], "admin": sys.argv[2]}
    schema = schemathesis.openapi.from_path("docs/use/openapi.yaml")
    count, failures = 0, []
    for result in schema.get_all_operations():
        operation = result.ok()
        isAdmin = operation.path.startswith(("/v1/", "/metrics"))
        header = "Authorization" if isAdmin else "token"
        for place, body in enumerate(BODIES):
            for credential in CREDENTIALS:
                # Each body with each credential. The content types alternate.
                extra = HEADERS[zlib.crc32(f"{operation.label} {place} {credential}".encode()) % len(HEADERS)]
                if operation.method.upper() == "HEAD":
                    body, extra = b"", {}
                case = operation.Case(path_parameters=parameters(operation))
                url = listeners["admin" if isAdmin else "public"]
                response = case.call(
                    base_url=url, headers={**extra, **credentials(credential, header)}, data=body or None, timeout=20)
                count += 1
                if body and "Content-Encoding" in extra:
                    # The server itself refuses it before it finds the call.
                    if response.status_code != 415:
                        failures.append(f"{operation.label} {body!r} {extra}: {response.status_code} in place of 415")
                    continue
                try:
                    case.validate_response(response, checks=CHECKS)
                except Exception as failure:  # reports every failure
                    failures.append(f"{operation.label} {body!r} {extra} {credential}:\n{failure}")
    print(f"{count} broken requests, {len(failures)} answers outside the document")
    for failure in failures[:5]:
        print(failure)
    sys.exit(1 if failures else 0)


main()
