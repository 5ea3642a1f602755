"""Mail: headers, texts and attachments."""

from email import message_from_bytes
from email.message import EmailMessage, Message
from email.policy import default
from typing import cast

from clew.documents.extraction.html import text_of_html
from clew.documents.extraction.reading import MAX_DEPTH, Reading, SourceFile, Unreadable
from clew.documents.extraction.text import decode

_HEADERS = ("From", "To", "Cc", "Date", "Subject")
_HEADER_CHARACTERS = 1000
_MAX_PARTS = 1000


def read_mail(source: SourceFile, reading: Reading) -> None:
    if reading.depth >= MAX_DEPTH:
        raise Unreadable(f"refused: mails are attached to each other more than {MAX_DEPTH} deep")
    mail = message_from_bytes(source.data, _class=EmailMessage, policy=default)
    head = {name: value for name in _HEADERS if (value := _header(mail, name))}
    if not head:
        raise Unreadable("it has none of the headers of a mail")
    bodies, attachments = _parts(mail)
    lines = [f"{name}: {value}" for name, value in head.items()]
    reading.text(
        "\n".join([*lines, "", *bodies]),
        attachments=len(attachments),
        **{name.lower(): value for name, value in head.items()},
    )
    for name, data in attachments:
        reading.inside(name, data)


def _parts(mail: EmailMessage) -> tuple[list[str], list[tuple[str, bytes]]]:
    """The texts to read and the files to open. Of the same text as plain and as HTML, the plain one."""
    plain, rich, attachments = list[str](), list[str](), list[tuple[str, bytes]]()
    todo: list[Message] = [mail]
    for _ in range(_MAX_PARTS):
        if not todo:
            break
        part = todo.pop()
        kind = part.get_content_type()
        if kind == "message/rfc822":
            attachments.append((_file_name(part, "eml"), b"".join(map(_whole, _children(part)))))
        elif part.is_multipart():
            todo.extend(reversed(_children(part)))
        elif part.get_content_disposition() == "attachment" or part.get_filename():
            attachments.append((_file_name(part, "bin"), _payload(part)))
        elif kind == "text/html":
            rich.append(text_of_html(_text(part)))
        elif kind.startswith("text/"):
            plain.append(_text(part))
        else:
            attachments.append((_file_name(part, kind.partition("/")[2]), _payload(part)))
    return plain or rich, attachments


def _children(part: Message) -> list[Message]:
    payload = part.get_payload()
    return [child for child in payload if isinstance(child, Message)] if isinstance(payload, list) else []


def _whole(message: Message) -> bytes:
    return message.as_bytes()


def _payload(part: Message) -> bytes:
    return cast("bytes | None", part.get_payload(decode=True)) or b""


def _text(part: Message) -> str:
    data = _payload(part)
    try:
        return data.decode(part.get_content_charset() or "utf-8")
    except (LookupError, UnicodeDecodeError):
        return decode(data)[0]


def _header(mail: Message, name: str) -> str:
    """The standard library raises on some headers that occur in real mails."""
    try:
        value = str(mail.get(name) or "")
    except (ValueError, IndexError, AttributeError, KeyError, TypeError):
        return ""
    return " ".join(value.split())[:_HEADER_CHARACTERS]


def _file_name(part: Message, extension: str) -> str:
    try:
        return part.get_filename() or f"attachment.{extension}"
    except (ValueError, IndexError, AttributeError, KeyError, TypeError):
        return f"attachment.{extension}"
