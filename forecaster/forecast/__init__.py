"""From a bundle and a history to a forecast: question, predictor, intervals, notices, export."""
