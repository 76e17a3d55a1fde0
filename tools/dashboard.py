"""Write the Grafana dashboard from the list of its panels: `python -m tools.dashboard`.

A test compares the file with the output of this program, and the metrics in it with those that a
server gives.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DASHBOARD = Path(__file__).parents[1] / "docker/monitoring/grafana/dashboards/darkroom.json"

COLUMNS, HEIGHT = 24, 8
"""Width of the dashboard and height of a panel, in units of Grafana's grid."""

SCHEMA = 39
"""The version of Grafana's format that is written here (Grafana 11)."""

_WHERE = 'job="darkroom", instance=~"$instance"'
_IMAGE_ROUTES = 'route=~"/(classify|filter|info|match|process)"'


@dataclass(frozen=True, slots=True)
class Panel:
    """A plot of some expressions, each with the text of its legend. `unit` is a unit of Grafana."""

    title: str
    unit: str
    lines: Mapping[str, str]
    about: str = ""
    stacked: bool = False


def _rate(metric: str, by: str, labels: str = "") -> str:
    selector = ", ".join(filter(None, (_WHERE, labels)))
    return f"sum by ({by}) (rate({metric}{{{selector}}}[$__rate_interval]))"


def _quantile(share: float, metric: str, by: str, labels: str = "") -> str:
    inner = _rate(f"{metric}_bucket", f"le, {by}" if by else "le", labels)
    return f"histogram_quantile({share}, {inner})"


def _now(metric: str, by: str = "instance") -> str:
    return f"sum by ({by}) ({metric}{{{_WHERE}}})"


_DURATION = "darkroom_http_request_duration_seconds"

ROWS: Sequence[tuple[str, Sequence[Panel]]] = (
    (
        "What clients see",
        (
            Panel(
                "Images answered",
                "cps",
                {_rate("darkroom_images_total", "operation, outcome"): "{{operation}} {{outcome}}"},
                "Images a second by their outcome: ok, or the code of the problem.",
                stacked=True,
            ),
            Panel(
                "Requests by status",
                "reqps",
                {_rate(f"{_DURATION}_count", "status", _IMAGE_ROUTES): "{{status}}"},
                stacked=True,
            ),
            Panel(
                "Time of a request",
                "s",
                {
                    _quantile(share, _DURATION, "", _IMAGE_ROUTES): f"p{share * 100:g}"
                    for share in (0.5, 0.9, 0.99)
                },
                "From its first byte to the last of its answer.",
            ),
        ),
    ),
    (
        "Where the time goes",
        (
            Panel(
                "Time of an image in each stage, p90",
                "s",
                {_quantile(0.9, "darkroom_stage_duration_seconds", "stage"): "{{stage}}"},
            ),
            Panel(
                "Images in a batch",
                "short",
                {
                    _rate("darkroom_batch_size_sum", "operation")
                    + " / "
                    + _rate("darkroom_batch_size_count", "operation"): "{{operation}}"
                },
                "The mean size of the micro-batches.",
            ),
            Panel(
                "Batches by the reason of their release",
                "cps",
                {_rate("darkroom_batch_releases_total", "reason"): "{{reason}}"},
                stacked=True,
            ),
        ),
    ),
    (
        "Load and limits",
        (
            Panel(
                "Use of each limit",
                "percentunit",
                {
                    f"{_now('darkroom_in_use', 'limit')} / {_now('darkroom_limit', 'limit')}": (
                        "{{limit}}"
                    )
                },
                "At 100 % further requests wait or are refused.",
            ),
            Panel(
                "Waiting and running",
                "short",
                {
                    _now("darkroom_queue_images"): "waiting for the device",
                    _now("darkroom_running_images"): "on the device",
                    _now("darkroom_in_flight_images"): "admitted",
                },
            ),
            Panel(
                "Refusals by reason",
                "reqps",
                {_rate("darkroom_rejections_total", "reason"): "{{reason}}"},
                stacked=True,
            ),
            Panel(
                "Predicted wait",
                "s",
                {_now("darkroom_predicted_wait_seconds"): "{{instance}}"},
                "Time until all admitted work is done; requests that cannot wait are refused.",
            ),
            Panel(
                "Connections",
                "short",
                {
                    _now("darkroom_connections"): "open",
                    _rate("darkroom_connections_ended_total", "reason"): "ended: {{reason}}",
                },
            ),
            Panel(
                "Time to fetch a URL, p90",
                "s",
                {_quantile(0.9, "darkroom_fetch_duration_seconds", "outcome"): "{{outcome}}"},
            ),
            Panel(
                "Images not computed again",
                "cps",
                {
                    _rate("darkroom_result_cache_hits_total", "instance"): "kept result",
                    _rate("darkroom_results_shared_total", "instance"): "equal image in flight",
                    _rate("darkroom_images_not_modified_total", "instance"): "304",
                    _rate("darkroom_result_cache_misses_total", "instance"): "computed (misses)",
                },
                "By DARKROOM_RESULT_CACHE and by If-None-Match.",
                stacked=True,
            ),
        ),
    ),
    (
        "Processes",
        (
            Panel(
                "CPU",
                "short",
                {_rate("darkroom_process_cpu_seconds_total", "process"): "{{process}}"},
                "Cores in use.",
                stacked=True,
            ),
            Panel(
                "Resident memory",
                "bytes",
                {_now("darkroom_process_resident_memory_bytes", "process"): "{{process}}"},
                "What processes share is counted in each of them.",
            ),
            Panel(
                "Ends of decoder processes",
                "cps",
                {_rate("darkroom_decoder_ends_total", "reason"): "{{reason}}"},
            ),
        ),
    ),
    (
        "GPUs",
        (
            Panel(
                "Utilisation",
                "percentunit",
                {
                    _now("darkroom_gpu_utilization_ratio", "gpu"): "kernels, GPU {{gpu}}",
                    _now("darkroom_gpu_jpeg_utilization_ratio", "gpu"): "JPEG engines, GPU {{gpu}}",
                },
            ),
            Panel(
                "Memory in use",
                "bytes",
                {_now("darkroom_gpu_memory_used_bytes", "gpu"): "GPU {{gpu}}"},
            ),
            Panel(
                "Images of workers",
                "cps",
                {_rate("darkroom_device_images_total", "device"): "{{device}}"},
                "Images in finished micro-batches.",
            ),
            Panel(
                "Time with a batch",
                "short",
                {_rate("darkroom_device_busy_seconds_total", "device"): "{{device}}"},
                "Workers of a device that have a batch, on average.",
            ),
            Panel(
                "Images at workers",
                "short",
                {_now("darkroom_device_queue_images", "device"): "{{device}}"},
                "They wait for the device or are on it.",
            ),
            Panel("Power", "watt", {_now("darkroom_gpu_power_watts", "gpu"): "GPU {{gpu}}"}),
        ),
    ),
)


def dashboard() -> str:
    """Return the JSON text of the dashboard."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        place = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
        panels.append({"type": "row", "title": title, "gridPos": place, "panels": []})
        top += 1
        for first in range(0, len(row), 3):
            few = row[first : first + 3]
            width = COLUMNS // len(few)
            for column, panel in enumerate(few):
                place = {"x": column * width, "y": top, "w": width, "h": HEIGHT}
                panels.append(_plot(panel, place))
            top += HEIGHT
    for number, each in enumerate(panels, 1):
        each["id"] = number
    return json.dumps(_around(panels), indent=1) + "\n"


def _plot(panel: Panel, place: Mapping[str, int]) -> dict[str, Any]:
    custom: dict[str, Any] = {"fillOpacity": 20 if panel.stacked else 0}
    if panel.stacked:
        custom["stacking"] = {"mode": "normal"}
    targets = [
        {"refId": chr(ord("A") + number), "expr": expression, "legendFormat": legend}
        for number, (expression, legend) in enumerate(panel.lines.items())
    ]
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "gridPos": dict(place),
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}},
        "options": {"tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": targets,
    }


def _around(panels: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the whole dashboard, with a choice of the data source and of the servers."""
    source = {"name": "datasource", "label": "Data source", "type": "datasource"}
    servers = {
        "name": "instance",
        "label": "Server",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": 'label_values(darkroom_build_info{job="darkroom"}, instance)',
        "includeAll": True,
        "multi": True,
        "refresh": 2,
        "current": {"text": "All", "value": "$__all"},
    }
    return {
        "uid": "darkroom",
        "title": "Darkroom",
        "tags": ["darkroom"],
        "schemaVersion": SCHEMA,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [source | {"query": "prometheus"}, servers]},
        "panels": panels,
    }


if __name__ == "__main__":
    DASHBOARD.write_text(dashboard())
