# In place of nginxinc/nginx-unprivileged:1.29-alpine: Debian's nginx.
FROM stand-in/debian
RUN apt-get update -qq \
    && apt-get install -qq --no-install-recommends nginx wget \
    && rm -rf /var/lib/apt/lists/* \
    && ln -sf /dev/stderr /var/log/nginx/error.log
