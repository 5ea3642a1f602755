"""Images: checked, never re-encoded. The stored bytes are the received bytes."""

from dataclasses import dataclass
from io import BytesIO

from PIL import Image, UnidentifiedImageError

from clew.documents.extraction.reading import MAX_PIXELS, Reading, SourceFile, Unreadable

# No other format is tried, whatever a file claims to be: each format is a parser that can be attacked.
FORMATS = {
    "PNG": ("png", "image/png"),
    "JPEG": ("jpg", "image/jpeg"),
    "GIF": ("gif", "image/gif"),
    "WEBP": ("webp", "image/webp"),
}
_SEVERAL_JPEGS = "MPO"  # what phones make: a JPEG with more behind it
# Up to this size an image is decoded to check that it is complete; above, only its header is checked.
_DECODED_PIXELS = 16_000_000
_MIN_SIDE = 8  # rules, bullets and tracking dots

# The size is checked here, before a pixel is decoded; Pillow would only warn.
Image.MAX_IMAGE_PIXELS = None
# Loaded now: Pillow would import a format at its first use, and a confined process cannot.
Image.init()


@dataclass(frozen=True, slots=True)
class Look:
    """What the header of an image says."""

    format: str
    width: int
    height: int
    frames: int

    @property
    def ext(self) -> str:
        return FORMATS[self.format][0]

    @property
    def media(self) -> str:
        return FORMATS[self.format][1]

    def __str__(self) -> str:
        return f"{self.format}, {self.width} x {self.height}"


def read_image(source: SourceFile, reading: Reading) -> None:
    add_image(source.data, look(source.data), reading)


def embedded(data: bytes, part: str, reading: Reading) -> bool:
    """An image inside a document. One we have no reader for, or too small to show anything, is passed over."""
    try:
        seen = look(data)
    except Unreadable as exc:
        reading.warn(f"{part} was left out: {exc}")
        return False
    except ValueError:
        return False
    if min(seen.width, seen.height) < _MIN_SIDE:
        return False
    add_image(data, seen, reading, part=part)
    return True


def add_image(data: bytes, seen: Look, reading: Reading, part: str = "") -> None:
    reading.binary(
        data,
        part=part,
        ext=seen.ext,
        media=seen.media,
        summary=str(seen),
        width=seen.width,
        height=seen.height,
        frames=seen.frames,
    )


def look(data: bytes) -> Look:
    """Raises Unreadable for a damaged or gigantic image, ValueError for an unsupported format."""
    try:
        image = Image.open(BytesIO(data), formats=list(FORMATS))
    except UnidentifiedImageError as exc:
        raise ValueError("not an image") from exc
    with image:
        check_pixels(*image.size)
        kind = "JPEG" if image.format == _SEVERAL_JPEGS else str(image.format)
        seen = Look(kind, *image.size, frames=getattr(image, "n_frames", 1))
        _check_whole(image)
        return seen


def check_pixels(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise Unreadable(f"{width:,} x {height:,} pixels are more than {MAX_PIXELS // 10**6} million")


def _check_whole(image: Image.Image) -> None:
    try:
        if image.format == "PNG":
            image.verify()  # the checksum of every chunk, without decoding one
        elif image.format in ("JPEG", _SEVERAL_JPEGS):
            image.draft("RGB", (image.width // 8, image.height // 8))
            image.load()
        elif image.width * image.height <= _DECODED_PIXELS:
            image.load()
    except (OSError, SyntaxError, ValueError, EOFError) as exc:
        raise Unreadable("the image is damaged") from exc
