"""From a data card or a file to windows, by way of reader, series, calendar and scaling."""
