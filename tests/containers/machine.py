"""What the stand-in for Python's image takes from the machine that runs the containers.

`python machine.py FOLDER` writes python.tar, the Python that runs this, without the packages
installed in it; pip.conf, where its pip finds packages, with folders of the machine as addresses
that the engine serves; folders, those folders; ca.crt, the certificates that the machine trusts.
"""

import os
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
from pathlib import Path

ADDRESS = "172.17.0.1"
PORT = 8999
SETTINGS = ("index-url", "extra-index-url", "find-links", "trusted-host", "timeout", "retries")


def main(folder):
    settings, folders = pip_settings()
    lines = [f"{name} = {value}" for name, value in settings.items()]
    lines.append("cert = /etc/ssl/certs/ca-certificates.crt")
    (folder / "pip.conf").write_text("\n".join(["[global]", *lines, ""]))
    (folder / "folders").write_text("".join(f"{each}\n" for each in sorted(folders)))
    trusted = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
    shutil.copy(trusted or "/etc/ssl/certs/ca-certificates.crt", folder / "ca.crt")
    with tarfile.open(folder / "python.tar", "w") as archive:
        for part in ("bin", "lib", "include"):
            archive.add(Path(sys.base_prefix, part), part, filter=kept)


def pip_settings():
    """The settings of pip from files and environment, and the local folders among them."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    settings, folders = {}, set()
    for where, name, value in re.findall(r"^([\w:]+)\.([\w-]+)='(.*)'$", listed, re.MULTILINE):
        if where not in ("global", ":env:") or name not in SETTINGS:
            continue
        words = []
        for word in value.split():
            if (path := Path(word.removeprefix("file://"))).is_absolute():
                # an index links to files beside it
                folders.add(path.parent if "index" in name else path)
                word = f"http://{ADDRESS}:{PORT}{path}"
            words.append(word)
        settings[name] = " ".join(words)
    if folders:
        settings["trusted-host"] = f"{settings.get('trusted-host', '')} {ADDRESS}".strip()
    return settings, folders


def kept(member):
    """Keep Python, without installed packages, their scripts and Python's own tests."""
    name = member.name
    out = re.search(r"(^|/)(site-packages/.|__pycache__|test(s)?/|config-[\w.-]+/.*\.a$)", name)
    script = name.startswith("bin/") and not re.fullmatch(r"bin/python[\d.]*", name)
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return None if out or script or name.endswith(".a") else member


if __name__ == "__main__":
    main(Path(sys.argv[1]))
