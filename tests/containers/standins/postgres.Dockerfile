# In place of postgres:17-alpine: Debian's PostgreSQL 17, started in the same way.
FROM stand-in/debian
RUN apt-get update -qq \
    && apt-get install -qq --no-install-recommends postgresql-17 \
    && rm -rf /var/lib/apt/lists/* /var/lib/postgresql \
    && echo "postgres:x:70:70::/var/lib/postgresql:/bin/sh" >> /etc/passwd \
    && install -d -m 1777 -o 70 -g 70 /var/lib/postgresql/data
COPY --chmod=755 postgres.sh /usr/local/bin/entrypoint
ENV PATH=/usr/lib/postgresql/17/bin:/usr/sbin:/usr/bin:/sbin:/bin PGDATA=/var/lib/postgresql/data
VOLUME /var/lib/postgresql/data
STOPSIGNAL SIGINT
ENTRYPOINT ["/usr/local/bin/entrypoint"]
