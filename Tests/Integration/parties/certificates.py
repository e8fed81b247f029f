"""Certificates for tests from the openssl command: authorities and their certificates, with any dates and purposes."""

import subprocess

VALID = ("20200101000000Z", "20990101000000Z")
EXPIRED = ("20200101000000Z", "20200102000000Z")
FUTURE = ("20900101000000Z", "20910101000000Z")


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


class Certificate:
    """A certificate and its key as PEM files; with `can_sign` it is an authority."""

    def __init__(self, folder, name, issuer=None, dates=VALID, purpose=None, names="DNS:localhost,IP:127.0.0.1", can_sign=False,
                 of=None):
        self.folder, self.name = folder, name
        self.file, self.key = folder / f"{name}.pem", folder / f"{name}.key"
        place = folder / f"{name}.ca"
        place.mkdir()
        (place / "index.txt").write_text("")
        (place / "serial").write_text(f"{abs(hash(name)) % 10**6 + 1:06d}")
        usage = f"extendedKeyUsage={purpose}\n" if purpose else ""
        alternates = f"subjectAltName={names}\n" if names else ""
        (place / "ca.cnf").write_text(
            f"[ca]\ndefault_ca=d\n[d]\ndatabase={place}/index.txt\nserial={place}/serial\nnew_certs_dir={place}\n"
            f"default_md=sha256\npolicy=p\nunique_subject=no\n[p]\ncommonName=supplied\n"
            f"[x]\nbasicConstraints=critical,CA:{'TRUE' if can_sign else 'FALSE'}\n{usage}{alternates}")
        request = place / "request.pem"
        if of:
            # The subject and the key of another certificate, to be signed by another authority.
            self.key.write_bytes(of.key.read_bytes())
            openssl("req", "-new", "-key", self.key, "-subj", f"/CN={of.name}", "-out", request)
        else:
            openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                    "-keyout", self.key, "-out", request)
        signing = ["-cert", issuer.file, "-keyfile", issuer.key] if issuer else ["-selfsign", "-keyfile", self.key]
        openssl("ca", "-batch", "-config", place / "ca.cnf", "-extensions", "x", *signing, "-in", request, "-out", self.file,
                "-startdate", dates[0], "-enddate", dates[1], "-notext")
        self.key.chmod(0o600)

    def sign(self, name, **fields):
        return Certificate(self.folder, name, issuer=self, **fields)

    def chain(self, *others):
        """Returns a file with this certificate followed by the others."""
        path = self.folder / f"{self.name}-chain.pem"
        path.write_text("".join(one.file.read_text() for one in (self, *others)))
        return path

    def files(self):
        return {"certificate": str(self.file), "key": str(self.key)}


def authority(folder, name="authority", issuer=None, **fields):
    return Certificate(folder, name, issuer=issuer, can_sign=True, names=None, **fields)
