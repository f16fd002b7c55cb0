"""Targets of webhooks: where they may be, and how they are stored."""

from __future__ import annotations

import ipaddress
import sys

import httpx2
import pytest
from cryptography.fernet import Fernet
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic_ai._ssrf import is_cloud_metadata_ip, is_private_ip

from pydantic_ai_a2a import Push
from pydantic_ai_a2a.public_hosts import is_public
from pydantic_ai_a2a.server.push.address_policy import AddressPolicy, AddressRefused
from pydantic_ai_a2a.server.push.stored_targets import TargetCipher, TargetUnreadable
from pydantic_ai_a2a.types import PushTarget

from ...cases import each_case

PUBLIC = ['93.184.216.34', '1.1.1.1', '2606:4700:4700::1111', '64:ff9b::5db8:d822']
PRIVATE = [
    *('127.0.0.1', '127.255.255.254', '0.0.0.0', '10.0.0.1', '172.16.0.1', '172.31.255.255', '192.168.1.1'),
    *('169.254.169.254', '100.64.0.1', '100.100.100.200', '192.0.0.192', '198.18.0.1', '224.0.0.1', '255.255.255.255'),
    *('168.63.129.16', '203.0.113.1', '240.0.0.1'),
    *('::', '::1', 'fe80::1', 'fe80::1%eth0', 'fc00::1', 'fd00:ec2::254', 'fec0::1', 'ff02::1', '2001:db8::1'),
    # Private addresses of IPv4 in disguise.
    *('::ffff:127.0.0.1', '::ffff:10.0.0.1', '::127.0.0.1', '64:ff9b::7f00:1', '64:ff9b::a9fe:a9fe'),
    *('64:ff9b:1::7f00:1', '2002:7f00:1::', '2001:0:7f00:1::', '2606:4700::5efe:7f00:1', '::ffff:0:127.0.0.1'),
]


@pytest.mark.parametrize('address', PUBLIC)
def test_globally_routable_addresses_count_as_public(address: str) -> None:
    assert is_public(address)


@each_case('address', [*PRIVATE, 'localhost', '', '1.2.3'])
def test_private_or_invalid_addresses_are_not_public(address: str) -> None:
    assert not is_public(address)


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
@example(ipaddress.ip_address('2606:4700:4700::1111'))
def test_addresses_blocked_by_pydantic_ai_are_not_public(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if is_private_ip(str(address)) or is_cloud_metadata_ip(str(address)):
        assert not is_public(str(address))


@pytest.mark.parametrize(
    'url', ['https://example.com', 'https://hooks_1.example.com.:65535/a@b?c=d@e#f', 'https://bücher.de/%20%0a']
)
def test_url_with_host_name_is_accepted_without_resolving(url: str) -> None:
    assert AddressPolicy(()).check_url(url) == httpx2.URL(url).copy_with(fragment=None)


@pytest.mark.parametrize('address', PUBLIC)
def test_public_address_in_url_is_accepted(address: str) -> None:
    host = f'[{address}]' if ':' in address else address
    AddressPolicy(()).check_url(f'https://{host}/hook')


@each_case('address', [address for address in PRIVATE if '%' not in address])
def test_private_address_in_url_is_refused(address: str) -> None:
    host = f'[{address}]' if ':' in address else address
    with pytest.raises(AddressRefused, match='must not name an address that is not public'):
        AddressPolicy(()).check_url(f'https://{host}/hook')


@pytest.mark.parametrize('host', ['127.1', '2130706433', '0x7f000001', '127.0.0.1.', '10.1', '0'])
def test_unusual_spellings_of_private_addresses_are_refused(host: str) -> None:
    with pytest.raises(AddressRefused, match='must not name an address that is not public'):
        AddressPolicy(()).check_url(f'https://{host}/hook')


@each_case(
    ('url', 'why'),
    [
        ('http://example.com/', 'must begin with https://'),
        ('http://93.184.216.34/', 'must begin with https://'),
        ('ftp://example.com/', 'must begin with https:// and a host'),
        ('file:///etc/passwd', 'must begin with https:// and a host'),
        ('example.com', 'must begin with https:// and a host'),
        ('https://', 'must begin with https:// and a host'),
        ('https:///path', 'must begin with https:// and a host'),
        ('https://user:password@example.com/', 'must not hold credentials'),
        ('https://user@example.com/', 'must not hold credentials'),
        ('https://localhost/', 'must not name a host of a private network'),
        ('https://LOCALHOST./', 'must not name a host of a private network'),
        ('https://a.localhost/', 'must not name a host of a private network'),
        ('https://metadata.google.internal/', 'must not name a host of a private network'),
        ('https://printer.local/', 'must not name a host of a private network'),
        ('https://@example.com/', 'must not hold credentials'),
        ('https://example.com:port/', 'is not a valid URL'),
        ('https://[::1/', 'is not a valid URL'),
        ('https://0177.0.0.1/', 'is not a valid URL'),
        ('https://example.com:0/', 'must have a port from 1 to 65535'),
        ('https://example.com:99999/', 'must have a port from 1 to 65535'),
        ('https://example.com:-1/', 'must have a port from 1 to 65535'),
        ('https://example.com/a%00b', 'must not hold'),
        ('https://example.com/?a=%00', 'must not hold'),
        ('https://example.com%00.example.org/', 'must not hold'),
        ('https://example.com\\@example.org/', 'must not hold white space, control characters, backslashes'),
        ('https://example.com/a\\b', 'must not hold'),
        ('https://example.com/a b', 'must not hold'),
        ('https://example.com/a\tb', 'must not hold'),
        ('https://example.com/\x9f', 'must not hold'),
        ('https://exa%6dple.com/', 'without percent-encoding'),
        ('https://localhost%2e/', 'without percent-encoding'),
        ('https://ex%2fample.com/', 'without percent-encoding'),
        ('https://*.example.com/', 'whose name can be looked up'),
        ('https://exa$mple.com/', 'whose name can be looked up'),
        ('https://exa<mple>.com/', 'whose name can be looked up'),
        ('https://a,b.example.com/', 'whose name can be looked up'),
        (f'https://{".".join(["a" * 60] * 5)}/', 'whose name can be looked up'),
        ('https://[2606:4700:4700::1111%25eth0]/', 'must not name an address that is not public'),
        ('https://[2606:4700:4700::1111%eth0]/', 'must not name an address that is not public'),
        ('https://example..com/', 'whose name can be looked up'),
        (f'https://{"a" * 64}.example.com/', 'whose name can be looked up'),
    ],
)
def test_invalid_url_is_refused_with_a_reason(url: str, why: str) -> None:
    with pytest.raises(AddressRefused, match=why):
        AddressPolicy(()).check_url(url)


@pytest.mark.parametrize(
    'url',
    [
        *('http://hooks.internal/', 'https://HOOKS.internal./', 'http://localhost:9000/', 'http://127.0.0.1/'),
        'http://[::1]:8080/',
    ],
)
def test_private_hosts_may_be_private_and_without_tls(url: str) -> None:
    guard = AddressPolicy(['hooks.internal', 'localhost', '127.0.0.1', '::1'])
    guard.check_addresses(guard.check_url(url), ['10.0.0.1'])


@pytest.mark.parametrize('addresses', [['10.0.0.1'], ['93.184.216.34', '::1'], ['93.184.216.34', '127.0.0.1']])
def test_host_with_any_private_address_is_refused(addresses: list[str]) -> None:
    guard = AddressPolicy(['hooks.internal'])
    with pytest.raises(AddressRefused, match='has an address that is not public'):
        guard.check_addresses(guard.check_url('https://not.hooks.internal.example.com/'), addresses)


def test_string_instead_of_list_is_rejected() -> None:
    with pytest.raises(TypeError, match=r'Push\(\): private_hosts takes a list or a set of strings'):
        Push(private_hosts='hooks.internal')
    with pytest.raises(TypeError, match=r'Push\(\): keys takes a list of strings'):
        Push(keys='one key')


TARGET = PushTarget(id='c', url='https://example.com/hook', token='token', scheme='Bearer', credentials='credentials')
OLD, NEW = (Fernet.generate_key().decode() for _ in range(2))


@pytest.mark.parametrize('keys', [[], [OLD], [NEW, OLD]])
@pytest.mark.parametrize('target', [TARGET, PushTarget(id='d', url='https://example.com/')])
def test_stored_target_is_read_back(keys: list[str], target: PushTarget) -> None:
    cipher = TargetCipher(keys)
    assert cipher.load(cipher.dump(target)) == target


def test_encrypted_target_contains_no_plain_text() -> None:
    sealed = TargetCipher([NEW]).dump(TARGET)
    assert not [word for word in (b'example', b'token', b'Bearer', b'credentials') if word in sealed]


def test_target_keys_can_be_rotated() -> None:
    before, with_both, after = TargetCipher([OLD]), TargetCipher([NEW, OLD]), TargetCipher([NEW])
    assert with_both.load(before.dump(TARGET)) == TARGET
    assert after.load(with_both.dump(TARGET)) == TARGET


def test_unencrypted_target_is_readable_after_keys_are_added() -> None:
    assert TargetCipher([NEW]).load(TargetCipher([]).dump(TARGET)) == TARGET


@pytest.mark.parametrize('keys', [[], [NEW]])
def test_target_encrypted_with_removed_key_is_unreadable(keys: list[str]) -> None:
    with pytest.raises(TargetUnreadable, match=r'no key of Push\.keys decrypts the webhook'):
        TargetCipher(keys).load(TargetCipher([OLD]).dump(TARGET))


def test_invalid_key_is_rejected_without_being_shown() -> None:
    with pytest.raises(
        ValueError, match=r'^Push\.keys must be keys of cryptography\.fernet\.Fernet\.generate_key\(\)\.$'
    ):
        TargetCipher(['password'])


def test_target_repr_hides_secrets() -> None:
    assert repr(TARGET) == "PushTarget(id='c', scheme='Bearer')"


def test_missing_push_extra_is_named_in_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'cryptography.fernet', None)
    with pytest.raises(ImportError, match=r"pip install 'pydantic-ai-a2a\[push\]'"):
        TargetCipher([NEW])
