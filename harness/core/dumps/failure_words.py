"""Words for a failure, in the languages in which people word their tools. A word alone proves
nothing: programs print it too."""

from __future__ import annotations

import re

_WORDS = {
    "English": (
        r"error|exception|fail|time.?out|timed out|refused|unavailable|unreachable|overload"
        r"|exceeded|too many|retry|abort|disconnect|\bbusy\b|not available|evict|exhausted|throttl"
        r"|rate.?limit|not ready|not respond|no response|crash"
    ),
    "German": (
        r"fehler|fehlgeschlagen|zeitüberschreitung|zeitlimit|abgelehnt|nicht erreichbar"
        r"|nicht verfügbar|keine antwort|überlastet"
    ),
    "French": (
        r"erreur|échec|échoué|délai|indisponible|injoignable|ne répond pas|refusée?\b|surchargé"
    ),
    "Spanish": (
        r"excepción|\bfall[oó]\b|se agotó|tiempo de espera|no disponible|rechazad|no responde"
    ),
    "Portuguese": r"\berro\b|falha|falhou|tempo esgotado|tempo limite|indisponível|não responde",
    "Italian": r"errore|fallit|scaduto|non disponibile|rifiutat|non risponde",
    "Russian": r"ошибк|сбой|истекло|превышен|недоступ|отказан|не отвечает|не удалось|перегруж",
    "Chinese": (
        r"错误|异常|失败|超时|繁忙|不可用|重试|无响应|未响应|拒绝|断开|耗尽|限流|过载|崩溃|无法连接"
    ),
    "Japanese": r"エラー|失敗|タイムアウト|接続でき|利用でき|応答が|過負荷|拒否",
    "Korean": r"오류|에러|실패|시간 ?초과|연결할 수 없|사용할 수 없|응답이 없|과부하|거부",
}
"""Roots of words (chosen: what messages of servers and HTTP clients say in these languages)."""

FAILURE = re.compile("|".join(_WORDS.values()), re.IGNORECASE)
