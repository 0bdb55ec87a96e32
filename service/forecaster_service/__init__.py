"""The HTTP face of trained models; it never trains.

`app` puts it together from `settings`. A POST passes `middleware` (access, deadlines), `body`
(bytes to JSON), `routes/predict` and the queue of `batching`, in front of the models of `store`,
which `loading` loads and replaces; `request`, `response` and `card` are the shapes in
/openapi.json. `protocol`, `workers` and `replicas` are for slow clients, several processes and
several machines, `metrics` and `gauges` for Prometheus. Begin reading with `routes/predict`.
"""
