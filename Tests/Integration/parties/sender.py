"""A sender service in forty lines: leases handoff jobs, gives each to the vendor, and settles it.

    python sender.py http://127.0.0.1:7081 TOKEN [--once]

Here the vendor is a line on standard output; a real one sends `body` to APNs with the headers in the job.
"""

import json
import sys
import urllib.request


def call(base, token, path, body):
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(base + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def send_to_vendor(job):
    """Returns APNs' answer: an outcome, and the reason of a failure."""
    print(json.dumps(job, ensure_ascii=False), flush=True)
    return {"outcome": "accepted", "vendorId": job["apnsId"]}


def main(base, token, once):
    while True:
        wanted = {"channel": "apns", "max": 100, "leaseSeconds": 60, "waitSeconds": 10}
        jobs = call(base, token, "/v1/handoff/lease", wanted)["jobs"]
        results = [{"jobId": job["jobId"], "leaseId": job["leaseId"], **send_to_vendor(job)} for job in jobs]
        # A repetition is harmless: if this call fails, the lease expires and the job is leased again.
        if results:
            call(base, token, "/v1/handoff/results", results)
        if once:
            return


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], "--once" in sys.argv)
