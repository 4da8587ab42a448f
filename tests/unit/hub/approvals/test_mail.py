"""Notices reach their reader on the page and by e-mail, once."""

import base64
import email
import email.policy
import socketserver
import ssl
import threading
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
import sqlalchemy as sa
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from cloister.hub.approvals import tell
from cloister.hub.approvals.mail import deliver
from cloister.hub.core.database import now
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Notice, Person
from cloister.hub.core.notices import mine, read_all, read_one
from cloister.hub.core.settings import Settings
from cloister.privacy.errors import BadName, StoreFailed


class Server(socketserver.ThreadingTCPServer):
    """A mail server as small as one can be. What it refuses, it says."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, host="127.0.0.1", refuses=(), tls=None, at_once=False):
        super().__init__((host, 0), Conversation)
        self.refusal = "550 nobody of that name"
        self.got, self.refuses, self.tls, self.at_once, self.signed_in = [], refuses, tls, at_once, []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def address(self, scheme="smtp"):
        host, port = self.server_address
        return f"{scheme}://{host}:{port}"

    def handle_error(self, request, client_address):
        """A client that hangs up is what some tests are about."""


class Conversation(socketserver.StreamRequestHandler):
    def say(self, line):
        self.wfile.write(line.encode() + b"\r\n")

    def seal(self):
        self.request = self.server.tls.wrap_socket(self.request, server_side=True)
        self.setup()

    def finish(self):
        super().finish()
        self.request.close()

    def handle(self):
        if self.server.at_once:
            self.seal()
        self.say("220 here")
        while line := self.rfile.readline().decode().strip():
            word = line.split()[0].upper()
            if word == "EHLO":
                sealed = isinstance(self.request, ssl.SSLSocket)
                self.say("250 here" if self.server.tls is None else "250-here")
                if self.server.tls is not None:
                    self.say("250 AUTH PLAIN" if sealed else "250 STARTTLS")
            elif word == "STARTTLS":
                self.say("220 go on")
                self.seal()
            elif word == "AUTH":
                self.server.signed_in.append(base64.b64decode(line.split()[2]).split(b"\0")[1:])
                self.say("235 welcome")
            elif word == "RCPT" and any(one in line for one in self.server.refuses):
                self.say(self.server.refusal)
            elif word == "DATA":
                self.say("354 go on")
                lines = []
                while (text := self.rfile.readline()) != b".\r\n":
                    lines.append(text)
                self.server.got.append(email.message_from_bytes(b"".join(lines), policy=email.policy.default))
                self.say("250 kept")
            elif word == "QUIT":
                self.say("221 bye")
                return
            else:
                self.say("250 yes")


@pytest.fixture
def server():
    made = Server()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def certificate(tmp_path):
    """A certificate for 127.0.0.1 that signs itself, and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mail")])
    here, today = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(here, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = tmp_path / "mail.pem"
    path.write_bytes(secret + made.public_bytes(Encoding.PEM))
    return path


@pytest.fixture(params=["smtps", "smtp"])
def sealed_server(request, certificate):
    """A server that speaks TLS at once, or after STARTTLS; and its scheme."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    made = Server(tls=context, at_once=request.param == "smtps")
    yield made, request.param
    made.shutdown()
    made.server_close()


@pytest.fixture
def open_hub(tmp_path):
    made = []

    def create(**settings):
        hub = Hub.create(Settings(folder=tmp_path / f"hub{len(made)}", **settings))
        made.append(hub)
        with hub.database.writing() as session:
            people = [
                Person(verified=1.0, email=f"{name}@clinic.example", name=name.title()) for name in ("ann", "bob")
            ]
            session.add_all(people)
        return hub, *people

    yield create
    for one in made:
        one.close()


def leave(hub, person, text, link=""):
    with hub.database.writing() as session:
        return tell(hub, session, person.id, text, link)


def unsent(hub):
    with hub.database.reading() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(Notice).where(~Notice.mailed))


def test_an_email_becomes_a_file_once(open_hub, tmp_path):
    hub, ann, _ = open_hub(mail_folder=str(tmp_path / "mail"), address="https://hub.example/", name="Our hub")
    leave(hub, ann, "Your request was granted.", "/requests/1")
    assert deliver(hub) == 1
    assert deliver(hub) == 0
    (file,) = (tmp_path / "mail").iterdir()
    assert file.suffix == ".eml"
    message = email.message_from_bytes(file.read_bytes(), policy=email.policy.default)
    assert message["To"] == "ann@clinic.example"
    assert message["Subject"] == "Our hub: Your request was granted."
    assert "https://hub.example/requests/1" in message.get_content()


def test_without_a_folder_or_a_server_nothing_is_sent_or_lost(open_hub):
    hub, ann, _ = open_hub()
    leave(hub, ann, "Hello.")
    assert deliver(hub) == 0
    assert unsent(hub) == 1


def test_old_notices_are_not_mailed_when_mail_is_set_up_late(open_hub, tmp_path):
    hub, ann, _ = open_hub(mail_folder=str(tmp_path / "mail"))
    leave(hub, ann, "Long ago.")
    with hub.database.writing() as session:
        session.execute(sa.update(Notice).values(created=now() - 30 * 86400))
    assert deliver(hub) == 0


def test_a_closed_account_gets_no_mail(open_hub, tmp_path):
    hub, ann, _ = open_hub(mail_folder=str(tmp_path / "mail"))
    leave(hub, ann, "Hello.")
    with hub.database.writing() as session:
        session.get(Person, ann.id).active = False
    assert deliver(hub) == 0
    assert list((tmp_path / "mail").iterdir()) == []


def test_a_folder_that_cannot_be_written_keeps_the_mail_for_later(open_hub, tmp_path):
    (tmp_path / "mail").write_text("a file, not a folder")
    hub, ann, _ = open_hub(mail_folder=str(tmp_path / "mail"))
    leave(hub, ann, "Hello.")
    with pytest.raises(StoreFailed):
        deliver(hub)
    assert unsent(hub) == 1
    (tmp_path / "mail").unlink()
    assert deliver(hub) == 1


def test_mail_goes_through_a_server(open_hub, server):
    hub, ann, bob = open_hub(smtp_url=server.address(), mail_from="hub@clinic.example")
    leave(hub, ann, "First.")
    leave(hub, bob, "Second.")
    assert deliver(hub) == 2
    assert [(one["To"], one["From"]) for one in server.got] == [
        ("ann@clinic.example", "hub@clinic.example"),
        ("bob@clinic.example", "hub@clinic.example"),
    ]


def test_an_address_that_is_refused_does_not_stop_the_others(open_hub, server):
    server.refuses = ("ann@",)
    hub, ann, bob = open_hub(smtp_url=server.address())
    leave(hub, ann, "First.")
    leave(hub, bob, "Second.")
    assert deliver(hub) == 1
    assert [one["To"] for one in server.got] == ["bob@clinic.example"]
    assert unsent(hub) == 0


ODD = ["a@[", 'é@<,"', ',(]:?@.").\\', "ü@x.example", "two\nlines@x.example", "@", ""]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("verified", [None, 1.0])
def test_an_address_that_cannot_be_written_to_is_given_up_and_the_others_get_their_mail(
    open_hub, server, odd, verified
):
    hub, ann, bob = open_hub(smtp_url=server.address())
    with hub.database.writing() as session:  # as older versions accepted them
        one = session.get(Person, ann.id)
        one.email, one.verified, one.verify_asked = odd, verified, None if verified else now()
    leave(hub, ann, "First.")
    leave(hub, bob, "Second.")
    assert deliver(hub) == 1
    assert [one["To"] for one in server.got] == ["bob@clinic.example"]
    assert (deliver(hub), unsent(hub)) == (0, 0)


def test_a_text_that_cannot_be_written_is_given_up_and_the_others_are_sent(open_hub, server, monkeypatch):
    hub, ann, bob = open_hub(smtp_url=server.address())
    leave(hub, ann, "First.")
    leave(hub, bob, "Second.")
    real = email.message.EmailMessage.set_content

    def fail(message, text, *more):
        if "First" in text:
            raise RuntimeError("ZZSECRETZZ")
        return real(message, text, *more)

    monkeypatch.setattr(email.message.EmailMessage, "set_content", fail)
    assert deliver(hub) == 1
    assert unsent(hub) == 0


def test_an_address_that_is_not_accepted_now_is_tried_again_without_holding_up_the_others(open_hub, server):
    server.refuses, server.refusal = ("ann@",), "450 not now"
    hub, ann, bob = open_hub(smtp_url=server.address())
    leave(hub, ann, "First.")
    leave(hub, bob, "Second.")
    with pytest.raises(StoreFailed, match="tried again"):
        deliver(hub)
    assert [one["To"] for one in server.got] == ["bob@clinic.example"]
    server.refuses = ()
    assert deliver(hub) == 1


def test_a_link_that_is_never_accepted_is_given_up_after_seven_days(open_hub, server):
    server.refuses, server.refusal = ("ann@",), "450 not now"
    hub, ann, _ = open_hub(smtp_url=server.address())
    first = now() - 6.9 * 86400
    with hub.database.writing() as session:
        one = session.get(Person, ann.id)
        one.verified, one.verify_asked = None, first
    with pytest.raises(StoreFailed):
        deliver(hub)
    with hub.database.reading() as session:
        assert session.get(Person, ann.id).verify_asked == pytest.approx(first)


def test_no_mail_goes_to_another_machine_without_tls(open_hub):
    server = Server("127.0.0.2")  # not one of the names of this machine that we trust
    try:
        hub, ann, _ = open_hub(smtp_url=server.address().replace("smtp://", "smtp://user:secret@"))
        leave(hub, ann, "Hello.")
        with pytest.raises(StoreFailed) as caught:
            deliver(hub)
        assert "secret" not in str(caught.value)
        assert server.got == []
        assert unsent(hub) == 1
    finally:
        server.shutdown()
        server.server_close()


def test_mail_and_password_go_through_tls(open_hub, sealed_server, certificate, monkeypatch):
    server, scheme = sealed_server
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))  # whom OpenSSL trusts
    hub, ann, _ = open_hub(smtp_url=server.address(scheme).replace("://", "://hub:s%40cret@"))
    leave(hub, ann, "Hello.")
    assert deliver(hub) == 1
    assert [one["To"] for one in server.got] == ["ann@clinic.example"]
    assert server.signed_in == [[b"hub", b"s@cret"]]


def test_no_mail_and_no_password_go_to_a_server_with_a_certificate_of_nobody(open_hub, sealed_server):
    server, scheme = sealed_server
    hub, ann, _ = open_hub(smtp_url=server.address(scheme).replace("://", "://hub:secret@"))
    leave(hub, ann, "Hello.")
    with pytest.raises(StoreFailed, match="cannot be reached"):
        deliver(hub)
    assert (server.got, server.signed_in, unsent(hub)) == ([], [], 1)


def test_a_server_that_is_down_is_tried_again(open_hub, server):
    address = server.address()
    server.shutdown()
    server.server_close()
    hub, ann, _ = open_hub(smtp_url=address)
    leave(hub, ann, "Hello.")
    with pytest.raises(StoreFailed):
        deliver(hub)
    assert unsent(hub) == 1


def test_an_address_that_is_none_is_named(open_hub):
    hub, ann, _ = open_hub(smtp_url="http://mail.example")
    leave(hub, ann, "Hello.")
    with pytest.raises(BadName, match="CLOISTER_SMTP_URL"):
        deliver(hub)


def test_two_workers_send_each_mail_once(open_hub, server):
    hub, ann, _ = open_hub(smtp_url=server.address())
    for number in range(20):
        leave(hub, ann, f"Number {number}.")
    threads = [threading.Thread(target=deliver, args=(hub,)) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(one["Subject"] for one in server.got) == sorted(f"Cloister: Number {number}." for number in range(20))


def test_a_name_with_line_breaks_cannot_add_a_header(open_hub, tmp_path):
    hub, ann, _ = open_hub(mail_folder=str(tmp_path / "mail"))
    leave(hub, ann, "Eve\r\nBcc: all@clinic.example\r\n commented.")
    assert deliver(hub) == 1
    (file,) = (tmp_path / "mail").iterdir()
    message = email.message_from_bytes(file.read_bytes(), policy=email.policy.default)
    assert message["Bcc"] is None


def test_notices_are_read_by_their_owner_only(open_hub):
    hub, ann, bob = open_hub()
    first, second = leave(hub, ann, "First."), leave(hub, ann, "Second.")
    leave(hub, bob, "For Bob.")
    with hub.database.writing() as session:
        assert [one.text for one in mine(session, ann)] == ["Second.", "First."]
        assert [one.text for one in mine(session, ann, before=second.id)] == ["First."]
        assert read_one(session, bob, first.id) is None
        assert read_one(session, ann, first.id).read
        assert read_all(session, ann) == 1
        assert [one.read for one in mine(session, bob)] == [False]
