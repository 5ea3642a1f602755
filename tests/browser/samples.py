"""What a user might drop onto the page."""

from tests.made_files import pdf

SALES = b"region,month,sales\nNorth,Jan,120\nNorth,Feb,150\nSouth,Jan,90\nSouth,Feb,80\nWest,Jan,60\nWest,Feb,95\n"
PROMPT = "Summarize the report and chart sales by region as report.docx"
SENTENCE = "Revenue grew by twelve percent to 4.2 million euros."


def report() -> bytes:
    return pdf(
        f"{SENTENCE} The north region grew fastest, because two stores opened in Hamburg.",
        "Costs rose by five percent, mostly because of the price of energy.",
        "A third store is planned for Bremen. Customers stayed as content as the year before.",
    )
