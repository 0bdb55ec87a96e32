from forecaster.datasets.reading import Reading, Stamps, Text


def test_what_0_2_0_kept_beside_a_reading_is_left_out():
    kept = {
        "stamps": {"form": "year", "parts": ["month"]},
        "text": {"separator": ";", "decimal": ",", "signs": {"a": "%"}},
    }
    text = Text(separator=";", decimal=",")
    assert Reading.from_dict(kept) == Reading(stamps=Stamps("year"), text=text)
