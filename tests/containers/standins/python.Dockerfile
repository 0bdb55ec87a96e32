# In place of python:3.11-slim: the Python of the machine that runs this, on Debian.
FROM stand-in/debian
RUN apt-get update -qq \
    && apt-get install -qq --no-install-recommends libssl3t64 libffi8 libsqlite3-0 libbz2-1.0 \
        liblzma5 libreadline8t64 libncursesw6 libexpat1 zlib1g \
    && rm -rf /var/lib/apt/lists/*
COPY ca.crt /etc/ssl/certs/ca-certificates.crt
COPY pip.conf /etc/pip.conf
ADD python.tar /usr/local/
RUN ldconfig && python3 -m ensurepip --default-pip > /dev/null && python -m pip --version
