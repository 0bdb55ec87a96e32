"""The release. The only place: the package, the service, bundles and the citation read it here."""

__version__ = "0.2.0"
