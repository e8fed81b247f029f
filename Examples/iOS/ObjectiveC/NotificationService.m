// A service extension that reports the notification as shown, and attaches the files of `longwire_media`.
@import LongwireClient;
@import UserNotifications;

@interface NotificationService : UNNotificationServiceExtension
@end

@implementation NotificationService

- (void)didReceiveNotificationRequest:(UNNotificationRequest *)request
                   withContentHandler:(void (^)(UNNotificationContent *))show {
    NSURL *folder = [NSFileManager.defaultManager
        containerURLForSecurityApplicationGroupIdentifier:@"group.com.example.app"];
    [LWServiceExtension handleRequest:request
                              gateway:@"https://push.example.com"
                            statePath:[folder.path stringByAppendingPathComponent:@"longwire.state"]
                            shownPath:[folder.path stringByAppendingPathComponent:@"longwire.shown"]
                           completion:show];
}

@end
