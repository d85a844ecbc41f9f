"""Which settings are understood, and which are refused? Without a process: read_config takes the environment as an argument."""

from __future__ import annotations

import pytest

from trainmaster.config import Config, read_config
from trainmaster.errors import InvalidConfig


def test_defaults(tmp_path):
    config = read_config({"HOME": str(tmp_path)})
    assert config == Config(home=str(tmp_path / ".trainmaster"))
    assert config.store_url == str(tmp_path / ".trainmaster" / "store")


def test_variables_win_over_the_file(tmp_path):
    (tmp_path / "config.yaml").write_text("cpus: 2\nmemory: 16GiB\nheartbeat_s: 1s\nstore: kept\ngpus: 0\nlook_s:\n")
    config = read_config({"TRAINMASTER_HOME": str(tmp_path), "TRAINMASTER_CPUS": "0.5", "TRAINMASTER_LOOK_S": ""})
    assert (config.cpus, config.memory, config.gpus, config.heartbeat_s, config.look_s) == (0.5, 16 << 30, 0, 1.0, 2.0)
    assert config.store_url == str(tmp_path / "kept"), "in the file, relative to the file"


@pytest.mark.parametrize("zero", ["0", "0.0", "0s", " 0 "])
def test_0_switches_off_what_a_simulated_machine_does(tmp_path, zero):
    (tmp_path / "config.yaml").write_text("simulated_notice_s: 0\nsimulated_boot_s: 1m30s\n")
    config = read_config({"TRAINMASTER_HOME": str(tmp_path), "TRAINMASTER_SIMULATED_PREEMPT_S": zero})
    assert (config.simulated_preempt_s, config.simulated_notice_s, config.simulated_boot_s) == (0.0, 0.0, 90.0)


def test_addresses_stay_as_they_are(tmp_path):
    environ = {"TRAINMASTER_HOME": str(tmp_path)}
    assert read_config({**environ, "TRAINMASTER_STORE": "s3://bucket/x"}).store_url == "s3://bucket/x"
    assert read_config({**environ, "TRAINMASTER_STORE": "/abs"}).store_url == "/abs"
    assert not read_config({**environ, "TRAINMASTER_STORE": "~/x"}).store_url.endswith("~/x")


def test_words_of_others_with_our_prefix_are_theirs(tmp_path):
    read_config({"TRAINMASTER_HOME": str(tmp_path), "TRAINMASTER_NOTES_FOR_THE_TEAM": "x"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CPUS", "-3"),
        ("CPUS", "0"),
        ("CPUS", "inf"),
        ("MEMORY", "lots"),
        ("MEMORY", "0"),
        ("GPUS", "-1"),
        ("GPUS", "1.5"),
        ("GPUS", "²"),
        ("SOURCE_BYTES_MAX", "-5"),
        ("HEARTBEAT_S", "nan"),
        ("HEARTBEAT_S", "0"),
        ("ATTEMPT_LEASE_S", "-1"),
        ("LOOK_S", "True"),
        ("DRIVER_IDLE_S", "1 fortnight"),
        ("SIMULATED_MACHINES", "0"),
        ("SIMULATED_BOOT_S", "-1"),
        ("SIMULATED_PREEMPT_S", "never"),
        ("SIMULATED_NOTICE_S", "nan"),
    ],
)
def test_values_that_do_not_fit(tmp_path, name, value):
    with pytest.raises(InvalidConfig) as caught:
        read_config({"TRAINMASTER_HOME": str(tmp_path), f"TRAINMASTER_{name}": value})
    assert f"TRAINMASTER_{name}: found " in caught.value.sentence
    assert "wanted" in caught.value.sentence


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("home: /x", "home is not a setting"),
        ("cpus: true", "cpus: found true, wanted a number"),
        ("cpus: [1]", "cpus: found a list, wanted a number"),
        ("cpus: 1\ncpus: 2", "given twice"),
        ("- cpus", "wanted a mapping"),
        ("3: 4", "3 is not a setting"),
        ("\tcpus: 1", "tab"),
    ],
)
def test_files_that_do_not_fit(tmp_path, text, says):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(InvalidConfig) as caught:
        read_config({"TRAINMASTER_HOME": str(tmp_path)})
    assert says in caught.value.sentence
    assert str(tmp_path / "config.yaml") in caught.value.sentence


def test_a_lease_must_outlast_two_heartbeats(tmp_path):
    with pytest.raises(InvalidConfig, match="less than twice heartbeat_s"):
        read_config({"TRAINMASTER_HOME": str(tmp_path), "TRAINMASTER_HEARTBEAT_S": "40"})
