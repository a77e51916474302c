"""The table of prices, and its refresh from a Price List API that is spoken to over HTTP."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from trainyard.common.errors import ServiceError
from trainyard.plan.prices import TABLE, load_prices, refresh_prices


def test_every_price_of_the_repository_names_its_source():
    tree = json.loads(TABLE.read_text())
    for region in tree["regions"].values():
        assert region["date"][:2] == "20"
        for section in ("training", "processing", "storage"):
            for name, entry in region[section].items():
                assert 0 < entry["usd"] < 200, name
                assert entry["source"] in tree["sources"], name
    assert all({"what", "estimated"} <= source.keys() for source in tree["sources"].values())


def test_a_price_is_marked_where_it_was_derived():
    prices = load_prices("us-east-1")
    assert (prices.find_hourly("training", "ml.m5.xlarge").usd, prices.date) == (0.23, "2026-09-25")
    assert not prices.find_hourly("training", "ml.m5.xlarge").is_estimated
    assert prices.find_hourly("training", "ml.p4d.24xlarge").is_estimated
    assert prices.find_hourly("training", "ml.unheard.of") is None
    assert load_prices("mars-north-1").date is None
    assert load_prices("mars-north-1").find_hourly("training", "ml.m5.large") is None


def product(usage: str, usd: str, storage: str = "") -> str:
    """One item of PriceList: a JSON text, as the service has it."""
    dimension = {
        "unit": "GB-Mo" if storage else "Hrs",
        "pricePerUnit": {"USD": usd},
        "description": f"${usd} per GB-Mo of {storage}" if storage else "",
    }
    return json.dumps(
        {
            "product": {"attributes": {"usagetype": usage, "regionCode": "eu-west-1"}},
            "terms": {"OnDemand": {"A.B": {"priceDimensions": {"A.B.C": dimension}}}},
        }
    )


PAGES = [
    [
        product("EU-Train:ml.m5.xlarge", "0.257"),
        product("EU-Processing:ml.m5.xlarge", "0.2570000000"),
        product("EU-Host:ml.m5.xlarge", "0.9"),
        product("EU-Train:ml.m5.large", "0.0000000000"),
    ],
    [
        product("EU-x", "0.154", "Training Job ML storage"),
        product("EU-x", "0.11", "Processing ML storage"),
        product("EU-y", "0.5", "Endpoint ML storage"),
        product("EU-Train:ml.p4d.24xlarge", "27.7"),
    ],
]


class PriceList(BaseHTTPRequestHandler):
    """GetProducts in two pages, for a region that it knows."""

    asked: list[dict] = []

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(request)
        page = int(request.get("NextToken", "0"))
        known = request["Filters"][0]["Value"] == "eu-west-1"
        answer = {"FormatVersion": "aws_v1", "PriceList": PAGES[page] if known else []}
        answer |= {"NextToken": "1"} if known and page == 0 else {}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def price_list(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict]]:
    PriceList.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), PriceList) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL_PRICING", url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        yield PriceList.asked
        server.shutdown()


def test_a_refresh_replaces_the_prices_of_a_region_and_no_others(tmp_path: Path, price_list):
    table = tmp_path / "prices.json"  # which begins with the shipped one
    before = json.loads(TABLE.read_text())
    assert refresh_prices("eu-west-1", table) == 5
    assert [each["ServiceCode"] for each in price_list] == ["AmazonSageMaker"] * 2
    prices = load_prices("eu-west-1", table)
    assert prices.find_hourly("training", "ml.p4d.24xlarge").usd == 27.7
    assert not prices.find_hourly("processing", "ml.m5.xlarge").is_estimated
    assert prices.find_hourly("training", "ml.g5.xlarge") is None  # it is listed no more
    assert (prices.find_storage("training").usd, prices.find_storage("processing").usd) == (
        0.154,
        0.11,
    )
    after = table.read_text()
    assert json.loads(after)["regions"]["us-east-1"] == before["regions"]["us-east-1"]
    assert '"ml.m5.xlarge": {"usd": 0.257, "source": "GetProducts"}' in after
    assert [path.name for path in tmp_path.iterdir()] == ["prices.json"]
    with pytest.raises(ServiceError, match="AWS lists no training or no processing there"):
        refresh_prices("mars-north-1", table)
    assert table.read_text() == after


def test_the_table_may_be_a_file_of_ones_own(tmp_path: Path, run_python):
    program = "from trainyard.plan.prices import *; print(load_prices('eu-west-1').date, TABLE)"
    own = tmp_path / "own.json"
    tree = json.loads(TABLE.read_text()) | {"regions": {"eu-west-1": {"date": "2026-11-27"}}}
    own.write_text(json.dumps(tree))
    done = run_python("-c", program, env={"TRAINYARD_PRICES": str(own)})
    assert done.stdout == f"2026-11-27 {own}\n"
