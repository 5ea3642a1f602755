"""What Clew itself answers to a message it cannot take, in the languages our fixed texts exist in."""

# ruff: noqa: RUF001 - the punctuation of other languages is no mistake

from collections.abc import Mapping
from enum import StrEnum

from clew.texts.language import DEFAULT, SUPPORTED


class Phrase(StrEnum):
    UNREADABLE = "unreadable"
    SPOKEN = "spoken"
    TOO_LARGE = "too_large"
    NOT_FETCHED = "not_fetched"


_PHRASES: Mapping[Phrase, Mapping[str, str]] = {
    Phrase.UNREADABLE: {
        "en": "I cannot read this kind of message. Please write it as text, or send it as a file.",
        "de": "Diese Art von Nachricht kann ich nicht lesen. Bitte schreiben Sie Text oder schicken Sie eine Datei.",
        "fr": "Je ne peux pas lire ce type de message. Écrivez-le en texte ou envoyez-le comme fichier.",
        "es": "No puedo leer este tipo de mensaje. Escríbalo como texto o envíelo como archivo.",
        "it": "Non posso leggere questo tipo di messaggio. Lo scriva come testo o lo invii come file.",
        "pt": "Não consigo ler este tipo de mensagem. Escreva-a como texto ou envie-a como ficheiro.",
        "zh": "我无法读取这种消息。请用文字发送，或以文件形式发送。",
    },
    Phrase.SPOKEN: {
        "en": "I cannot listen to recordings. Please write it as text.",
        "de": "Aufnahmen kann ich nicht anhören. Bitte schreiben Sie es als Text.",
        "fr": "Je ne peux pas écouter d’enregistrements. Écrivez-le en texte, s’il vous plaît.",
        "es": "No puedo escuchar grabaciones. Escríbalo como texto, por favor.",
        "it": "Non posso ascoltare registrazioni. Lo scriva come testo, per favore.",
        "pt": "Não consigo ouvir gravações. Escreva como texto, por favor.",
        "zh": "我无法收听录音。请用文字发送。",
    },
    Phrase.TOO_LARGE: {
        "en": "{name} is too large. I take files of up to {megabytes} MB.",
        "de": "{name} ist zu groß. Ich nehme Dateien bis {megabytes} MB.",
        "fr": "{name} est trop volumineux. J’accepte des fichiers jusqu’à {megabytes} Mo.",
        "es": "{name} es demasiado grande. Acepto archivos de hasta {megabytes} MB.",
        "it": "{name} è troppo grande. Accetto file fino a {megabytes} MB.",
        "pt": "{name} é demasiado grande. Aceito ficheiros até {megabytes} MB.",
        "zh": "{name} 太大。我接受不超过 {megabytes} MB 的文件。",
    },
    Phrase.NOT_FETCHED: {
        "en": "I could not get {name}. Please send it again.",
        "de": "Ich konnte {name} nicht abrufen. Bitte schicken Sie es noch einmal.",
        "fr": "Je n’ai pas pu récupérer {name}. Envoyez-le de nouveau, s’il vous plaît.",
        "es": "No pude obtener {name}. Envíelo de nuevo, por favor.",
        "it": "Non sono riuscito a ricevere {name}. Lo invii di nuovo, per favore.",
        "pt": "Não consegui obter {name}. Envie de novo, por favor.",
        "zh": "我无法获取 {name}。请再发送一次。",
    },
}


def phrase(which: Phrase, language: str, **values: object) -> str:
    return _PHRASES[which][language if language in SUPPORTED else DEFAULT].format(**values)


def language_of(code: str) -> str:
    """Of a language tag such as `pt-BR`, the language if we have it, else the default."""
    language = code.partition("-")[0].casefold()
    return language if language in SUPPORTED else DEFAULT
